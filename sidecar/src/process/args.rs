//! The command line. Every flag has a variable `TOOLCRIB_*`, with two exceptions: the OTLP endpoint
//! has OpenTelemetry's own variable, and `--metrics-port` has none, since the kubelet sets
//! `TOOLCRIB_METRICS_PORT` in every pod beside a Service called `toolcrib-metrics`. A flag overrides
//! its variable, since other webhooks edit a pod's env. No flag or variable holds a secret: both can
//! be read from outside the process.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use toolcrib_manifest::names;

/// The mediator: presents granted tools to a model, executes their calls, keeps the record.
#[derive(Debug, Parser)]
#[command(
    name = "toolcrib-sidecar",
    version,
    args_conflicts_with_subcommands = true
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub serve: ServeArgs,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Ask a running mediator about itself; for exec probes.
    Probe(ProbeArgs),
}

#[derive(Clone, Debug, Args)]
pub struct ServeArgs {
    /// Directory of the four compiled files.
    #[arg(long, env = "TOOLCRIB_CONFIG_DIR", default_value = names::CONFIG_DIR)]
    pub config_dir: PathBuf,
    /// Where the runner's requests arrive.
    #[arg(long, env = "TOOLCRIB_LISTEN", default_value_t = loopback(names::LISTEN_PORT))]
    pub listen: SocketAddr,
    /// Probes and metrics.
    #[arg(long, env = "TOOLCRIB_ADMIN_LISTEN", default_value_t = loopback(names::ADMIN_PORT))]
    pub admin_listen: SocketAddr,
    /// Directory of the record.
    #[arg(long, env = "TOOLCRIB_HISTORY_DIR", default_value = names::HISTORY_DIR)]
    pub history_dir: PathBuf,
    /// Serve /metrics, and nothing else of the admin listener, to the pod's network too.
    #[arg(long)]
    pub metrics_port: Option<u16>,
    /// This pod's name, from the downward API.
    #[arg(long, env = "TOOLCRIB_POD", default_value = "")]
    pub pod: String,
    /// Longest silence of a stream while rounds are hidden.
    #[arg(long, env = "TOOLCRIB_KEEPALIVE", default_value = "15s", value_parser = duration)]
    pub keepalive: Duration,
    /// Cap of everything under --history-dir.
    #[arg(long, env = "TOOLCRIB_HISTORY_MAX_BYTES", default_value_t = DEFAULT_HISTORY_BYTES)]
    pub history_max_bytes: u64,
    /// Projected ServiceAccount token for the link; without it there is no link.
    #[arg(long, env = "TOOLCRIB_LINK_TOKEN_FILE")]
    pub link_token_file: Option<PathBuf>,
    /// Put the bodies of requests and responses on stdout too.
    #[arg(long, env = "TOOLCRIB_RECORD_BODIES")]
    pub record_bodies: bool,
    /// Base URL of an OpenTelemetry receiver (OTLP over HTTP) for spans, and for the record if
    /// --export-records says so; empty: none.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT", value_parser = otlp_endpoint)]
    pub otlp_endpoint: Option<Endpoint>,
    /// Send the record to the receiver too, as OTLP logs.
    #[arg(long, env = "TOOLCRIB_EXPORT_RECORDS", requires = "otlp_endpoint")]
    pub export_records: bool,
    /// Send arguments and results of calls with it.
    #[arg(long, env = "TOOLCRIB_EXPORT_ARGUMENTS")]
    pub export_arguments: bool,
    /// What happens when the record is full and the receiver has not taken its older file.
    #[arg(long, env = "TOOLCRIB_EXPORT_WHEN_BEHIND", value_enum, default_value_t = WhenBehind::Drop)]
    pub export_when_behind: WhenBehind,
    /// End when stdin does, as on SIGTERM: for a parent that may be killed.
    #[arg(long, env = "TOOLCRIB_EXIT_WITH_STDIN")]
    pub exit_with_stdin: bool,
    /// Let services and providers be on this machine.
    #[arg(long, env = "TOOLCRIB_ALLOW_LOCAL")]
    pub allow_local: bool,
}

impl ServeArgs {
    /// Base URL of the receiver of spans.
    pub fn receiver(&self) -> Option<&str> {
        self.otlp_endpoint.as_ref()?.0.as_deref()
    }

    /// Base URL of the receiver of the record.
    pub fn collector(&self) -> Option<&str> {
        self.receiver().filter(|_| self.export_records)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WhenBehind {
    /// The file is removed, and its lines are counted as lost to the receiver.
    #[value(name = "Drop")]
    Drop,
    /// The file stays, and requests are refused until the receiver has taken it.
    #[value(name = "Refuse")]
    Refuse,
}

/// Half of the default emptyDir size.
const DEFAULT_HISTORY_BYTES: u64 = 64 * 1024 * 1024;

#[derive(Debug, Args)]
pub struct ProbeArgs {
    /// Whether requests would be served.
    #[arg(long, conflicts_with = "live", required_unless_present = "live")]
    pub ready: bool,
    /// Whether the process answers at all; never looks at readiness.
    #[arg(long)]
    pub live: bool,
    /// The admin listener of the mediator that is asked.
    #[arg(long, env = "TOOLCRIB_ADMIN_LISTEN", default_value_t = loopback(names::ADMIN_PORT))]
    pub admin_listen: SocketAddr,
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// The receiver of spans. `None` inside: no export, even if OpenTelemetry's other variables are set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint(pub Option<String>);

fn otlp_endpoint(text: &str) -> Result<Endpoint, String> {
    if text.is_empty() {
        return Ok(Endpoint(None));
    }
    let plain = url::Url::parse(text).is_ok_and(|url| {
        matches!(url.scheme(), "http" | "https")
            && url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none()
    });
    if plain {
        Ok(Endpoint(Some(text.to_string())))
    } else {
        Err("must be an http or https URL without credentials, like http://collector:4318".into())
    }
}

/// `15s`, `500ms`, `2m`: one whole number and one unit.
fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number
        .parse()
        .map_err(|_| format!("`{text}` is not a number with a unit, like 15s"))?;
    let duration = match unit {
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        "m" => Duration::from_secs(number.saturating_mul(60)),
        _ => return Err(format!("`{text}` has no unit that is known: ms, s, m")),
    };
    if duration.is_zero() {
        return Err("must be longer than nothing".to_string());
    }
    Ok(duration)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    /// The kubelet sets variables for each Service of the namespace, with names that their owners
    /// choose: `toolcrib-x` gives `TOOLCRIB_X_PORT`, `TOOLCRIB_X_SERVICE_HOST` and others.
    #[test]
    fn no_service_beside_the_pod_sets_a_flag() {
        for argument in Cli::command().get_arguments() {
            let Some(variable) = argument.get_env().and_then(|it| it.to_str()) else {
                continue;
            };
            for end in ["_PORT", "_HOST", "_ADDR", "_PROTO", "_TCP", "_UDP", "_SCTP"] {
                assert!(!variable.ends_with(end), "{variable}");
            }
        }
    }

    #[test]
    fn flags_have_the_names_and_defaults_of_the_contract() {
        let cli = Cli::try_parse_from(["toolcrib-sidecar"]).unwrap();
        assert_eq!(cli.serve.listen.to_string(), "127.0.0.1:4141");
        assert_eq!(cli.serve.admin_listen.to_string(), "127.0.0.1:4142");
        assert_eq!(cli.serve.keepalive, Duration::from_secs(15));
        assert!(!cli.serve.allow_local);

        let all = "toolcrib-sidecar --config-dir /c --listen 127.0.0.1:1 --admin-listen \
                   127.0.0.1:2 --history-dir /h --pod otter-0 --keepalive 500ms \
                   --history-max-bytes 9 --link-token-file /t --record-bodies --allow-local \
                   --otlp-endpoint http://c:4318 --export-records --export-when-behind Refuse";
        let serve = Cli::try_parse_from(all.split_whitespace()).unwrap().serve;
        assert_eq!(serve.pod, "otter-0");
        assert_eq!(serve.keepalive, Duration::from_millis(500));
        assert_eq!(serve.history_max_bytes, 9);
        assert_eq!(serve.link_token_file, Some(PathBuf::from("/t")));
        assert!(serve.record_bodies && serve.allow_local);
        assert!(serve.export_records && !serve.export_arguments);
        assert_eq!(serve.export_when_behind, WhenBehind::Refuse);
    }

    #[test]
    fn probe_needs_either_ready_or_live() {
        let parse = |line: &str| Cli::try_parse_from(line.split_whitespace());
        assert!(parse("toolcrib-sidecar probe --ready").is_ok());
        assert!(parse("toolcrib-sidecar probe --live").is_ok());
        assert!(parse("toolcrib-sidecar probe").is_err());
        assert!(parse("toolcrib-sidecar probe --ready --live").is_err());
    }

    #[test]
    fn an_otlp_endpoint_is_a_plain_url_or_nothing() {
        let parse = |text: &str| otlp_endpoint(text).map(|it| it.0);
        assert_eq!(parse(""), Ok(None));
        let fine = "http://collector.pond.svc:4318";
        assert_eq!(parse(fine), Ok(Some(fine.to_string())));
        for bad in [
            "collector:4318",
            "grpc://a:1",
            "http://me:secret@a",
            "http://a?b",
            "http://a#b",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn keepalive_needs_a_unit() {
        for bad in ["15", "s", "0s", "-1s", "1h", ""] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
