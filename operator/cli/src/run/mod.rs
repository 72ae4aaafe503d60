//! `run`: runs a program behind the real mediator on this machine, without a cluster.
//!
//! It compiles, fills in the credentials, and writes the four files into a folder that only this
//! user can read. It starts the mediator with them, runs the program with the environment of a
//! pod's runner, and stops the mediator when the program has ended.
//!
//! The mediator's link leads to this process, which asks on the terminal about calls that need an approval
//! ([`approvals`]).
//!
//! The context is written to a folder as well. A variable names the folder as in a pod, and
//! `mcp.json` has this mediator's address.
//!
//! Invariant: the program gets the mediator's address and its own token. Its environment and
//! arguments hold no credential of a service or provider. For processes of one user on one machine
//! this is hygiene, not a boundary; the boundary is the pod.

mod approvals;
mod mediator;
mod places;
mod record;
mod secrets;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    net::SocketAddr,
    path::Path,
    process::{ExitCode, ExitStatus},
};

use anyhow::Context as _;
use toolcrib_compile::{
    Compilation, CompiledSecret, LastGood, compile, identity, materialize, names,
};
use toolcrib_manifest::{Mode, SecretText};

use crate::{
    args::{RunArgs, SecretFrom, ValueFrom},
    failure::Failure,
    print,
    sources::{self, ObjectSource},
};
use approvals::LocalLink;
use mediator::{Mediator, Setup};

/// Name of the file with the token of the mediator's link.
const LINK_TOKEN: &str = "token";

/// The mediator's files and the program's environment.
struct RunPlan {
    compilation: Compilation,
    files: CompiledSecret,
    token: SecretText,
    model: ModelApi,
    link: LocalLink,
}

/// The program's model API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ModelApi {
    Mediator,
    /// A native runner without a ModelProvider: it has its own API, and keeps the variables for
    /// it.
    Runner,
}

impl ModelApi {
    fn of(compilation: &Compilation) -> Self {
        let files = &compilation.files;
        match files.agent.mode {
            Mode::Native if files.providers.providers.is_empty() => Self::Runner,
            Mode::Native | Mode::Mediated => Self::Mediator,
        }
    }
}

pub fn run(args: RunArgs) -> Result<ExitCode, Failure> {
    let prepared = prepare(&args)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    Ok(runtime.block_on(supervise(args, prepared))?)
}

fn prepare(args: &RunArgs) -> Result<RunPlan, Failure> {
    let mut loaded = sources::loaded(&args.files)?;
    secrets::add(&mut loaded, &args.secret).map_err(Failure::Usage)?;
    let namespace = args.namespace.as_deref();
    let agent = sources::find_agent(&loaded, &args.agent, namespace, &ObjectSource::Files)?;
    let mut compilation = compile(&loaded.inputs, &agent)
        .with_context(|| format!("the agent {agent} cannot be compiled"))?;
    // As in a cluster, faulty parts are reported and left out; the rest runs.
    print::findings(&loaded, &compilation.diagnostics);
    if let Some(refusal) = &compilation.refusal {
        let why = anyhow::anyhow!("the agent {agent} is not accepted: {}", refusal.message);
        return Err(Failure::Failed(why));
    }
    secrets::confirm(&compilation, args)?;
    places::apply(&mut compilation, &loaded.inputs, &args.at).map_err(Failure::Usage)?;
    for note in places::elsewhere(&compilation) {
        eprintln!("{note}");
    }
    let link = LocalLink::open(&agent, random()?)?;
    compilation.files.agent.link = Some(link.config());
    let token = identity::token(&agent.name, random()?);
    let files = files(&compilation, &loaded.secrets, &token);
    for reference in &files.missing {
        eprintln!(
            "warning: no value for {reference}: give it with --secret {reference}=env:VARIABLE"
        );
    }
    Ok(RunPlan {
        files,
        model: ModelApi::of(&compilation),
        compilation,
        token,
        link,
    })
}

fn files(
    compilation: &Compilation,
    values: &secrets::Values,
    token: &SecretText,
) -> CompiledSecret {
    let identity = [(names::TOKEN_KEY.to_string(), token.clone())].into();
    let tokens = identity::runner_tokens(&identity);
    let value = |reference: &_| values.get(reference).cloned();
    materialize(compilation, &value, &LastGood::default(), &tokens)
}

fn random() -> anyhow::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| anyhow::anyhow!("no randomness: {error}"))?;
    Ok(bytes)
}

/// Starts the mediator, runs the program, stops the mediator, prints the summary.
async fn supervise(args: RunArgs, plan: RunPlan) -> anyhow::Result<ExitCode> {
    let RunPlan {
        compilation,
        files,
        token,
        model,
        link,
    } = plan;
    // The folder has mode 0700, and is removed on every way out.
    let private = tempfile::Builder::new()
        .prefix("toolcrib-run-")
        .tempdir()
        .context("cannot make a private folder")?;
    let config = private.path().join("config");
    write_files(&config, &files.files)?;
    let link_folder = private.path().join("link");
    let link_token = link.token().expose().as_bytes().to_vec();
    write_files(&link_folder, &[(LINK_TOKEN.to_owned(), link_token)].into())?;
    let history = args
        .history_dir
        .clone()
        .unwrap_or_else(|| private.path().join("history"));
    std::fs::create_dir_all(&history)
        .with_context(|| format!("cannot make {}", history.display()))?;
    let records_before = record::count(&history)?;

    let context = compilation.context.clone();
    let asking = link.start(compilation)?;
    let mut mediator = Mediator::start(&Setup {
        program: mediator::find(args.sidecar.as_deref())?,
        config,
        link_token: link_folder.join(LINK_TOKEN),
        history: history.clone(),
        pod: args.agent.clone(),
        log: private.path().join("mediator.log"),
        verbose: args.verbose,
    })
    .await?;
    let folder = private.path().join("context");
    write_files(&folder, &at(mediator.address(), &context))?;
    let environment = environment(mediator.address(), model, &token, &folder);
    let status = program(&args, environment).await;
    mediator.stop().await?;
    asking.end().await;
    eprint!("{}", record::summary(&history, records_before)?);
    Ok(exit_code(status?))
}

/// Returns the compiled context with this mediator's address in place of a pod's.
fn at(mediator: SocketAddr, context: &BTreeMap<String, String>) -> BTreeMap<String, Vec<u8>> {
    let here = format!("http://{mediator}{}", names::MCP_PATH);
    context
        .iter()
        .map(|(name, text)| {
            let text = match name.as_str() {
                names::MCP_CONFIG => text.replace(&names::mcp_url(), &here),
                _ => text.clone(),
            };
            (name.clone(), text.into_bytes())
        })
        .collect()
}

fn write_files(folder: &Path, files: &BTreeMap<String, Vec<u8>>) -> anyhow::Result<()> {
    use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(folder)
        .with_context(|| format!("cannot make {}", folder.display()))?;
    for (name, bytes) in files {
        let path = folder.join(name);
        std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .and_then(|mut file| std::io::Write::write_all(&mut file, bytes))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Runs the program until it ends or the mediator dies.
async fn program(args: &RunArgs, environment: Environment) -> anyhow::Result<ExitStatus> {
    let (name, arguments) = args.command.split_first().context("no command")?;
    let mut command = tokio::process::Command::new(name);
    command.args(arguments).kill_on_drop(true);
    for hidden in args.secret.iter().filter_map(variable) {
        command.env_remove(hidden);
    }
    command.envs(environment);
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot start {}", Path::new(name).display()))?;
    let mut terminate = signal(tokio::signal::unix::SignalKind::terminate())?;
    // A terminal sends SIGINT to the program too; this process must not end before it.
    let mut interrupt = signal(tokio::signal::unix::SignalKind::interrupt())?;
    loop {
        tokio::select! {
            status = child.wait() => return status.context("cannot wait for the program"),
            _ = interrupt.recv() => {}
            _ = terminate.recv() => mediator::terminate(&child)?,
        }
    }
}

fn signal(kind: tokio::signal::unix::SignalKind) -> anyhow::Result<tokio::signal::unix::Signal> {
    tokio::signal::unix::signal(kind).context("cannot listen for signals")
}

fn variable(secret: &SecretFrom) -> Option<&str> {
    match &secret.value {
        ValueFrom::Variable(name) => Some(name),
        ValueFrom::File(_) => None,
    }
}

type Environment = Vec<(&'static str, OsString)>;

/// Returns the environment of a pod's runner, with this mediator's address and this context.
fn environment(
    mediator: SocketAddr,
    model: ModelApi,
    token: &SecretText,
    context: &Path,
) -> Environment {
    let base = format!("http://{mediator}");
    let token = || token.expose().into();
    let mut variables: Environment = vec![
        (names::ENV_TOKEN, token()),
        (names::ENV_CONTEXT, context.into()),
    ];
    match model {
        ModelApi::Mediator => variables.extend([
            (names::ENV_OPENAI_BASE_URL, format!("{base}/v1").into()),
            (names::ENV_OPENAI_API_KEY, token()),
            (names::ENV_ANTHROPIC_BASE_URL, base.into()),
            (names::ENV_ANTHROPIC_API_KEY, token()),
        ]),
        ModelApi::Runner => {}
    }
    let proxied = ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"]
        .iter()
        .any(|name| std::env::var_os(name).is_some());
    if proxied {
        for name in [names::ENV_NO_PROXY, "no_proxy"] {
            let mut value = std::env::var_os(name).unwrap_or_default();
            if !value.is_empty() {
                value.push(",");
            }
            value.push("127.0.0.1");
            variables.push((name, value));
        }
    }
    variables
}

/// Returns the program's own exit code; 128 plus the signal if it was killed, as shells do.
fn exit_code(status: ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt as _;
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}
