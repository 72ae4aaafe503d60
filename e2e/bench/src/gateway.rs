//! LLM gateways that others wrote, unmodified, and the settings with which they are measured.
//!
//! Every gateway listens on loopback alone, asks its callers for the key that the load generator
//! sends, and passes their requests on to the scripted model. All else is its default, the number
//! of its workers and its log among them.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::json;
use tempfile::TempDir;

use crate::manifest::{MODEL_KEY, TOKEN};
use crate::process::Program;

/// The system's programs: `uname` is one that Python's libraries start.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gateway {
    /// Shepherd Model Gateway, in Rust.
    Smg,
    /// The LiteLLM proxy, in Python.
    LiteLlm,
}

/// A gateway and the path of its program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstalledGateway {
    pub gateway: Gateway,
    pub program: PathBuf,
}

/// A running gateway. Its files are removed when this value is dropped.
pub(crate) struct RunningGateway {
    pub program: Program,
    pub address: SocketAddr,
    _files: TempDir,
}

/// How a gateway is started.
#[derive(Debug, PartialEq, Eq)]
struct Launch {
    arguments: Vec<String>,
    variables: Vec<(&'static str, String)>,
    /// Path that is answered 200 when the gateway passes requests on.
    ready: &'static str,
}

/// The addresses of a gateway.
#[derive(Clone, Copy, Debug)]
struct Addresses {
    listen: SocketAddr,
    /// Where the gateway serves metrics, if it does so at an address of their own.
    metrics: SocketAddr,
    model: SocketAddr,
}

impl Gateway {
    pub fn name(self) -> &'static str {
        match self {
            Self::Smg => "smg",
            Self::LiteLlm => "litellm",
        }
    }

    /// Divides the number of requests per slice, so that a slice of a slow gateway takes about as
    /// long as one of a fast gateway.
    pub(crate) fn fraction(self) -> usize {
        match self {
            Self::Smg => 1,
            Self::LiteLlm => 12,
        }
    }

    /// Timeout of waiting for the gateway to serve.
    fn patience(self) -> Duration {
        match self {
            Self::Smg => Duration::from_secs(60),
            // Python compiles its files at the first start.
            Self::LiteLlm => Duration::from_secs(300),
        }
    }

    /// Writes the gateway's files into `folder`, and returns how it is started.
    fn prepare(self, folder: &Path, addresses: Addresses) -> Result<Launch> {
        let Addresses {
            listen,
            metrics,
            model,
        } = addresses;
        let port = listen.port().to_string();
        match self {
            Self::Smg => Ok(Launch {
                arguments: [
                    "launch",
                    "--backend",
                    "openai",
                    "--worker-urls",
                    &format!("http://{model}"),
                    // For its callers and for the model.
                    "--api-key",
                    TOKEN,
                    "--host",
                    "127.0.0.1",
                    "--port",
                    &port,
                    "--prometheus-host",
                    "127.0.0.1",
                    "--prometheus-port",
                    &metrics.port().to_string(),
                ]
                .map(str::to_string)
                .into(),
                variables: Vec::new(),
                ready: "/readiness",
            }),
            Self::LiteLlm => {
                let file = folder.join("config.yaml");
                // JSON is YAML too.
                let config = json!({
                    "model_list": [{
                        "model_name": "house/otter-r0",
                        "litellm_params": {
                            "model": "openai/otter-r0",
                            "api_base": format!("http://{model}/v1"),
                            "api_key": MODEL_KEY,
                        },
                    }],
                    "general_settings": {"master_key": TOKEN},
                });
                fs::write(&file, config.to_string())?;
                Ok(Launch {
                    arguments: [
                        "--config",
                        file.to_str().context("the folder's name is not UTF-8")?,
                        "--host",
                        "127.0.0.1",
                        "--port",
                        &port,
                        "--telemetry",
                        "False",
                    ]
                    .map(str::to_string)
                    .into(),
                    // Otherwise it downloads a list of prices.
                    variables: vec![("LITELLM_LOCAL_MODEL_COST_MAP", "True".to_string())],
                    ready: "/health/readiness",
                })
            }
        }
    }
}

impl FromStr for Gateway {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> Result<Self> {
        match [Self::Smg, Self::LiteLlm]
            .into_iter()
            .find(|gateway| gateway.name() == name)
        {
            Some(gateway) => Ok(gateway),
            None => bail!("no gateway has the name {name:?}"),
        }
    }
}

impl FromStr for InstalledGateway {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, program) = text.split_once('=').context("not NAME=PROGRAM")?;
        Ok(Self {
            gateway: name.parse()?,
            program: program.into(),
        })
    }
}

impl InstalledGateway {
    /// Starts the gateway before the model at this address, and waits until it serves.
    pub(crate) async fn start(&self, model: SocketAddr) -> Result<RunningGateway> {
        let files = tempfile::tempdir().context("a folder for the gateway's files")?;
        let (listen, metrics) = (toolcrib_ports::free()?, toolcrib_ports::free()?);
        let addresses = Addresses {
            listen,
            metrics,
            model,
        };
        let mut launch = self.gateway.prepare(files.path(), addresses)?;
        launch.variables.extend([
            ("HOME", files.path().display().to_string()),
            ("PATH", PATH.to_string()),
        ]);
        let Launch {
            arguments,
            variables,
            ready,
        } = launch;
        let mut program = Program::start_with_descendants(&self.program, &arguments, &variables)?;
        let patience = self.gateway.patience();
        program.ready_within(listen, ready, patience).await?;
        Ok(RunningGateway {
            program,
            address: listen,
            _files: files,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_is_named_before_its_program() {
        let installed = InstalledGateway {
            gateway: Gateway::LiteLlm,
            program: "/opt/bin/litellm".into(),
        };
        assert_eq!(
            "litellm=/opt/bin/litellm"
                .parse::<InstalledGateway>()
                .unwrap(),
            installed
        );
        for wrong in ["litellm", "otter=/opt/bin/litellm", "/opt/bin/smg"] {
            wrong.parse::<InstalledGateway>().unwrap_err();
        }
    }

    #[test]
    fn a_gateway_listens_on_loopback_and_asks_the_given_model() {
        let folder = tempfile::tempdir().unwrap();
        let addresses = Addresses {
            listen: "127.0.0.1:4001".parse().unwrap(),
            metrics: "127.0.0.1:4002".parse().unwrap(),
            model: "127.0.0.1:4003".parse().unwrap(),
        };
        let smg = Gateway::Smg.prepare(folder.path(), addresses).unwrap();
        let line = smg.arguments.join(" ");
        assert!(line.contains("--worker-urls http://127.0.0.1:4003 "));
        assert!(line.contains("--host 127.0.0.1 --port 4001 "));
        assert!(line.ends_with("--prometheus-host 127.0.0.1 --prometheus-port 4002"));

        let litellm = Gateway::LiteLlm.prepare(folder.path(), addresses).unwrap();
        let line = litellm.arguments.join(" ");
        assert!(line.contains("--host 127.0.0.1 --port 4001 "));
        let config = fs::read_to_string(folder.path().join("config.yaml")).unwrap();
        let config: serde_json::Value = serde_json::from_str(&config).unwrap();
        let model = &config["model_list"][0]["litellm_params"];
        assert_eq!(model["api_base"], "http://127.0.0.1:4003/v1");
    }
}
