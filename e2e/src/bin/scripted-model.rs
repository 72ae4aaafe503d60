//! `scripted-model`: a stand-in for a model provider, for tests and the demo.

use std::{net::SocketAddr, path::PathBuf};

use anyhow::Context as _;
use clap::Parser;
use toolcrib_e2e::services::model::{ModelState, Script, router};
use toolcrib_e2e::services::serving;

/// A stand-in for a model provider. It plays a script and has no model.
///
/// Speaks OpenAI chat completions and responses and Anthropic messages under /v1, over plain
/// HTTP. POST /script replaces the script, GET /requests lists the requests received. Every route
/// but /healthz requires the API key.
#[derive(Parser)]
#[command(name = "scripted-model", version)]
struct Args {
    /// Address to listen on.
    #[arg(long, env = "SCRIPTED_MODEL_LISTEN", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// File with the API key that callers must send; read again on each request.
    #[arg(long, env = "SCRIPTED_MODEL_API_KEY_FILE")]
    api_key_file: PathBuf,
    /// Script to play, YAML or JSON; default: the demo's script.
    #[arg(long, env = "SCRIPTED_MODEL_SCRIPT")]
    script: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_target(false)
        .init();
    let script = match &args.script {
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            Script::parse(&text).with_context(|| format!("{} is not a script", path.display()))?
        }
        None => Script::default_script(),
    };
    serving::serve(
        args.listen,
        router(ModelState::new(args.api_key_file, script)),
    )
    .await
}
