//! Reads the objects and the calls for a proposal.

use std::collections::{BTreeMap, BTreeSet};

use toolcrib_bounds::count;
use toolcrib_compile::{Compilation, LoadResult, ObjectRef, near};
use toolcrib_manifest::Identity;

use super::evidence::Evidence;
use super::offers::OfferedTool;
use crate::args::{AssumedArgs, ClusterArgs, ConnectionArgs, ProposeArgs, RecordArgs, SourceArgs};
use crate::cluster::WithoutCluster;
use crate::failure::Failure;
use crate::print;
use crate::record::{self, Entry, Statistics};
use crate::sources::{self, ObjectScope, Objects};

/// Most agents of a record that a message names.
const MOST_AGENTS: usize = 8;

/// Reads the objects that are in force now, and finds the agent among them.
pub fn objects(args: &ProposeArgs) -> Result<(LoadResult, ObjectRef), Failure> {
    let cluster = &args.record.cluster;
    let has_files = !args.against.is_empty();
    let source = SourceArgs {
        paths: args.against.clone(),
        assumed: AssumedArgs {
            secrets: has_files,
            services: has_files,
        },
        // With -f the connection is only for reading the record.
        cluster: match has_files {
            true => ClusterArgs {
                connection: ConnectionArgs::default(),
                ..cluster.clone()
            },
            false => cluster.clone(),
        },
        operator: args.operator.clone(),
    };
    let Objects {
        loaded,
        namespace,
        from,
    } = sources::objects_or(&source, ObjectScope::Namespace, WithoutCluster::Against)?;
    let agent = sources::find_agent(&loaded, &args.agent, namespace.as_deref(), &from);
    match agent {
        Ok(agent) => Ok((loaded, agent)),
        Err(failure) => {
            print::findings(&loaded, []);
            Err(failure)
        }
    }
}

/// The record of the agent's namespace.
pub fn of_agent(args: &RecordArgs, agent: &ObjectRef) -> RecordArgs {
    RecordArgs {
        cluster: ClusterArgs {
            namespace: Some(agent.namespace.clone()),
            all_namespaces: false,
            connection: args.cluster.connection.clone(),
        },
        ..args.clone()
    }
}

/// Lines of files name the identity, which is not the agent's with `identity: Pod`.
pub fn refuse_pods_in_files(args: &ProposeArgs, compilation: &Compilation) -> Result<(), Failure> {
    let is_pod = compilation.files.agent.identity == Identity::Pod;
    match is_pod && !args.record.records.is_empty() {
        true => Err(Failure::usage(format_args!(
            "the lines of a file name the pods of {} and not the agent, since its identity is its pod's: leave -f out, so that the pods' logs are read",
            compilation.agent
        ))),
        false => Ok(()),
    }
}

/// Reads the calls of the agent in the span.
pub fn collect(
    args: &RecordArgs,
    agent: &ObjectRef,
    offers: &BTreeMap<String, OfferedTool>,
) -> Result<(Evidence, Statistics), Failure> {
    let mut evidence = Evidence::default();
    let mut others = BTreeSet::new();
    let mut outside = 0_usize;
    let statistics = record::read(args, Some(&agent.name), |entry| {
        let Entry::Call(call) = entry else {
            return Ok(());
        };
        // Lines of earlier releases have no namespace.
        let is_here = call.namespace.is_empty() || call.namespace == agent.namespace;
        if !is_here || call.agent != agent.name {
            if others.len() < MOST_AGENTS {
                others.insert(format!("{}/{}", call.namespace, call.agent));
            }
        } else if args.includes(&call.when) {
            evidence.add(&call, offers);
        } else {
            outside += 1;
        }
        Ok(())
    })?;
    match evidence.calls.all() {
        0 => Err(no_call(agent, &others, outside)),
        _ => Ok((evidence, statistics)),
    }
}

fn no_call(agent: &ObjectRef, others: &BTreeSet<String>, outside: usize) -> Failure {
    if outside > 0 {
        let calls = count(outside, "call");
        return Failure::usage(format_args!(
            "the record has no call of {agent} in this span, and {calls} outside of it: give another --since or --until"
        ));
    }
    let name = agent.to_string();
    let known: Vec<&str> = others.iter().map(String::as_str).collect();
    match known.is_empty() {
        true => Failure::usage(format_args!(
            "the record has no call of a tool: name the files of {agent}'s mediators with -f, or its pods' namespace with -n"
        )),
        false => {
            let known = near::meant_or_known(&name, known);
            let known = print::plain(&known).into_owned();
            Failure::usage(format_args!("the record has no call of {agent}; {known}"))
        }
    }
}
