//! The command line.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Parser;

/// Serve an MCP server that speaks over stdin and stdout as Streamable HTTP at /mcp.
///
/// The program is started once, for all clients, and again when it ends; calls that were
/// running then are answered with an error, and none is sent twice. What it writes to stderr
/// goes to the log. It gets this process's environment.
#[derive(Debug, Parser)]
#[command(name = "toolcrib-mcp-stdio", version, after_help = EXAMPLES)]
pub struct Cli {
    /// Where clients connect, as ADDRESS:PORT; :PORT alone is every address of the machine.
    /// /mcp is the server, /healthz says that this process runs, /readyz that its program does
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080", value_parser = address)]
    pub listen: SocketAddr,
    /// Longest time that the program may take for one call, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub call_timeout: u64,
    /// A file with a token, which each request must then bring as `X-API-Key` or as `Authorization:
    /// Bearer`; at least 16 characters. It may be replaced at any time
    #[arg(long, value_name = "PATH")]
    pub token_file: Option<PathBuf>,
    /// Copy this program into a folder, and end: an init container does so, and the server's own
    /// image then runs it from there
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["listen", "call_timeout", "token_file", "command"])]
    pub install: Option<PathBuf>,
    /// The program and its arguments
    #[arg(
        last = true,
        required_unless_present = "install",
        value_name = "COMMAND"
    )]
    pub command: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  toolcrib-mcp-stdio -- npx --no-install @modelcontextprotocol/server-everything stdio
  toolcrib-mcp-stdio --listen :8080 -- python3 server.py

Without --token-file every client that connects may call tools: listen on loopback then.";

/// Parses the address to listen on; `:PORT` means every address of the machine.
fn address(text: &str) -> Result<SocketAddr, String> {
    let everywhere = text.starts_with(':').then(|| format!("[::]{text}"));
    everywhere
        .as_deref()
        .unwrap_or(text)
        .parse()
        .map_err(|_| "must be like 127.0.0.1:8080 or :8080".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn arguments_after_the_dashes_go_to_the_program() {
        let line = "toolcrib-mcp-stdio --listen :81 -- otter --listen :82 -- x";
        let cli = Cli::try_parse_from(line.split_whitespace()).unwrap();
        assert_eq!(cli.listen, "[::]:81".parse().unwrap());
        assert_eq!(cli.command, ["otter", "--listen", ":82", "--", "x"]);
        assert!(Cli::try_parse_from(["toolcrib-mcp-stdio"]).is_err());
    }

    #[test]
    fn an_address_has_a_port() {
        let one = "127.0.0.1:8080".parse().unwrap();
        assert_eq!(address("127.0.0.1:8080"), Ok(one));
        for bad in ["8080", ":", ":x", "localhost:80", ""] {
            assert!(address(bad).is_err(), "{bad}");
        }
    }
}
