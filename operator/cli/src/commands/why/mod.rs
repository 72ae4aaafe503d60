//! `why`: what allowed one call of the record, and who wrote that.
//!
//! [`found`] finds the call, [`grant`] compares the grant that allowed it with the grant of now,
//! [`denial`] asks the objects of now about a call that was denied. [`checkout`] finds the grant in a git
//! checkout, [`audit_log`] its last write in the API server's audit log. [`text`] prints the answer. Not
//! here: the record's lines ([`crate::record`]).
//!
//! Invariant: what is not known is said to be so; nothing is guessed from what is known.

mod audit_log;
mod checkout;
mod denial;
mod found;
mod grant;
mod text;

use std::process::ExitCode;

use anyhow::Context as _;
use serde::Serialize;
use toolcrib_compile::{Compilation, LoadResult, ObjectRef, compile};

use self::audit_log::UserWrite;
use self::checkout::Place;
use self::found::FoundCall;
use self::grant::{GrantFacts, Write};
use crate::args::{AssumedArgs, ClusterArgs, ConnectionArgs, SourceArgs, WhyArgs};
use crate::cluster::{Session, WithoutCluster};
use crate::failure::Failure;
use crate::print::{self, Output};
use crate::record::{self, Call, Outcome};
use crate::sources::{self, ObjectScope};

/// The answer about one call.
#[derive(Serialize)]
struct Answer {
    call: Call,
    /// The grant that allowed the call. For a denied call, the grant that gives the tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    grant: Option<GrantFacts>,
    /// The last writes of the grant's parts, by the names that programs give themselves.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    written: Vec<Write>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<Place>,
    /// The user of the grant's last write before the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<UserWrite>,
    /// The ClusterToolPolicies that match the agent now.
    #[serde(skip_serializing_if = "Option::is_none")]
    policies: Option<Vec<String>>,
    /// The kind of the credential with which the tool is called now.
    #[serde(skip_serializing_if = "Option::is_none")]
    credential: Option<String>,
    /// What would have allowed a denied call, by the objects of now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    to_allow: Vec<String>,
}

pub fn why(args: &WhyArgs) -> Result<ExitCode, Failure> {
    sources::exist(&args.files)?;
    let FoundCall {
        call,
        limits,
        statistics,
    } = found::find(args)?;
    let agent = ObjectRef::new(call.namespace.clone(), call.agent.clone());
    let files = match args.files.is_empty() {
        true => None,
        false => Some(files(args, &agent)?),
    };
    let objects = match objects(args, &agent, files.as_ref()) {
        Ok(objects) => Some(objects),
        Err(failure) => {
            note(&format!("the objects of now were not read: {failure}"));
            None
        }
    };
    let loaded = match &objects {
        Some(Source::Cluster { loaded, .. }) => Some(&**loaded),
        Some(Source::Files) => files.as_ref(),
        None => None,
    };
    let compilation = loaded.and_then(|loaded| compile(&loaded.inputs, &agent));
    if loaded.is_some() && compilation.is_none() {
        note(&format!("there is no Agent {agent} now"));
    }
    let grant = grant::facts(
        &call,
        limits,
        loaded.map(|it| &it.inputs),
        compilation.as_ref(),
    );
    let mut answer = Answer {
        written: Vec::new(),
        file: None,
        user: None,
        policies: compilation.as_ref().map(|it| it.policies.clone()),
        credential: compilation.as_ref().and_then(|it| credential(it, &call)),
        to_allow: match (loaded, &compilation) {
            (Some(loaded), Some(compilation)) if call.outcome == Outcome::Denied => {
                denial::to_allow(&loaded.inputs, compilation, &call)?
            }
            (_, _) => Vec::new(),
        },
        grant,
        call,
    };
    if let Some(grant) = &answer.grant {
        if let (Some(Source::Cluster { session, .. }), Some(kind)) = (&objects, grant.kind) {
            match session.managed_fields(kind, &grant.key) {
                Ok(fields) => answer.written = grant::writes(&fields),
                Err(failure) => note(&format!("the grant was not read: {failure}")),
            }
        }
        if let Some(files) = &files {
            answer.file = checkout::place(files, grant, &answer.call.tool);
        }
        if !args.audit_log.is_empty() {
            let (key, when) = (&grant.key, &*answer.call.when);
            answer.user = audit_log::last_write(&args.audit_log, grant.kind, key, when)?;
        }
    }
    let text = match args.output {
        Output::Table => text::text(&answer, args),
        Output::Json | Output::Yaml => print::value(&answer, args.output)?,
    };
    print::to_stdout(&text).context("cannot write to standard output")?;
    Ok(record::remarks(&args.record, &statistics, false))
}

fn note(text: &str) {
    eprintln!("note: {}", print::plain(text));
}

/// Where the objects of now are.
enum Source {
    Files,
    Cluster {
        session: Box<Session>,
        loaded: Box<LoadResult>,
    },
}

fn objects(
    args: &WhyArgs,
    agent: &ObjectRef,
    files: Option<&LoadResult>,
) -> Result<Source, Failure> {
    if !args.record.records.is_empty() && files.is_some() {
        return Ok(Source::Files);
    }
    let cluster = ClusterArgs {
        namespace: Some(agent.namespace.clone()).filter(|it| !it.is_empty()),
        all_namespaces: false,
        connection: args.record.cluster.connection.clone(),
    };
    let source = SourceArgs {
        paths: Vec::new(),
        assumed: AssumedArgs::default(),
        cluster,
        operator: args.operator.clone(),
    };
    let session = Session::open(&source.cluster, &args.operator, WithoutCluster::Why)?;
    let objects = sources::objects_or(&source, ObjectScope::Namespace, WithoutCluster::Why)?;
    Ok(Source::Cluster {
        session: Box::new(session),
        loaded: Box::new(objects.loaded),
    })
}

/// Reads `--files`. What they lack is assumed to exist: Secrets and Services are often kept elsewhere.
fn files(args: &WhyArgs, agent: &ObjectRef) -> Result<LoadResult, Failure> {
    let source = SourceArgs {
        paths: args.files.clone(),
        assumed: AssumedArgs {
            secrets: true,
            services: true,
        },
        cluster: ClusterArgs {
            namespace: Some(agent.namespace.clone()).filter(|it| !it.is_empty()),
            all_namespaces: false,
            connection: ConnectionArgs::default(),
        },
        operator: args.operator.clone(),
    };
    let objects = sources::objects_or(&source, ObjectScope::Namespace, WithoutCluster::Why)?;
    Ok(objects.loaded)
}

fn credential(compilation: &Compilation, call: &Call) -> Option<String> {
    let mut tools = compilation.tools.iter();
    let tool = tools.find(|tool| tool.name == call.tool)?;
    Some(tool.credential.name().to_owned())
}
