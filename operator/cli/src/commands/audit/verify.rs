//! `audit verify`: finds missing, changed and cut off lines of a record.

use std::collections::BTreeSet;
use std::process::ExitCode;

use anyhow::Context as _;
use toolcrib_bounds::count;
use toolcrib_compile::ObjectRef;
use toolcrib_crds::RecordHeadStatus;
use toolcrib_record::{ChainReport, Digest, Head, SourceReport, Verifier};

use crate::args::{OperatorArgs, VerifyArgs};
use crate::cluster::{Session, WithoutCluster};
use crate::failure::Failure;
use crate::print;
use crate::record::{RecordLine, read_files};

/// The exit code if a line is missing or changed.
const FOUND: u8 = 3;

pub fn verify(args: &VerifyArgs) -> Result<ExitCode, Failure> {
    let mut verifier = Verifier::default();
    for path in &args.sources {
        verifier.source(&path.display().to_string());
        read_files(std::slice::from_ref(path), |_, line| {
            let pushed = match line {
                RecordLine::Written(text) => verifier.push(text),
                RecordLine::Exported { text, claim } => verifier.push_exported(text, claim),
            };
            pushed.map_err(|error| Failure::Failed(error.into()))
        })?;
    }
    let mut heads = args.head.clone();
    let mut absent_pods = BTreeSet::new();
    if let Some(agent) = &args.agent {
        let kept = kept_heads(args, agent)?;
        let chosen = choose(kept, &verifier);
        heads.extend(chosen.heads);
        absent_pods = chosen.absent_pods;
    }
    let (chains, sources) = verifier.finish(&heads);
    let mut text = text(&chains, &sources);
    for pod in absent_pods {
        let pod = print::plain(&pod);
        text +=
            &format!("pod {pod} is in the Agent's status, and no source begins a chain of it\n");
    }
    print::to_stdout(&text).context("cannot write to standard output")?;
    let is_alarm = chains
        .iter()
        .flat_map(|chain| &chain.findings)
        .any(|finding| finding.is_alarm())
        || sources
            .iter()
            .any(|source| source.unchained > 0 || !source.out_of_order.is_empty());
    Ok(match is_alarm {
        true => ExitCode::from(FOUND),
        false => ExitCode::SUCCESS,
    })
}

/// Reads the lines that the operator keeps, the latest first.
fn kept_heads(args: &VerifyArgs, agent: &str) -> Result<Vec<RecordHeadStatus>, Failure> {
    let operator = OperatorArgs::default();
    let session = Session::open(&args.cluster, &operator, WithoutCluster::Nothing)?;
    session.record_heads(&ObjectRef::new(session.default_namespace(), agent))
}

/// The kept lines to compare with.
struct ChosenHeads {
    heads: Vec<Head>,
    /// Pods of which no source has a line.
    absent_pods: BTreeSet<String>,
}

/// Chooses the lines of chains that the sources have, and the latest line of each pod that they name:
/// its earlier chains may have been rotated away.
fn choose(kept: Vec<RecordHeadStatus>, verifier: &Verifier) -> ChosenHeads {
    let pods = verifier.pods();
    let mut chosen = ChosenHeads {
        heads: Vec::new(),
        absent_pods: BTreeSet::new(),
    };
    let mut latest = BTreeSet::new();
    for head in kept {
        let is_latest = latest.insert(head.pod_uid);
        let has_chain = verifier.has_chain(&head.chain);
        let has_pod = pods.contains(&*head.pod);
        if !has_chain && !has_pod {
            chosen.absent_pods.insert(head.pod);
        } else if (has_chain || is_latest)
            && let Some(hash) = Digest::parse(&head.hash)
        {
            chosen.heads.push(Head {
                chain: head.chain,
                seq: head.seq,
                hash,
                aside: None,
            });
        }
    }
    chosen
}

fn text(chains: &[ChainReport], sources: &[SourceReport]) -> String {
    let mut text = String::new();
    for chain in chains {
        let pod = match &chain.pod {
            Some(pod) => format!(" of pod {}", print::plain(pod)),
            None => String::new(),
        };
        let id = print::plain(&chain.chain);
        let (first, last) = (chain.first, chain.last);
        text += &format!("chain {id}{pod}, lines {first} to {last}:");
        match chain.is_whole() {
            true => text += " whole\n",
            false => text += "\n",
        }
        for finding in &chain.findings {
            text += &format!("  {}\n", print::plain(&finding.to_string()));
        }
        if chain.absent_asides > 0 {
            let lines = count(chain.absent_asides as usize, "place");
            text += &format!(
                "  at {lines}, model_call lines are in no source; standard output never has them\n"
            );
        }
        if chain.is_present() {
            text += &format!("  head {id}:{last}:{}\n", chain.hash);
        }
    }
    for source in sources {
        let name = print::plain(&source.name);
        if let Some(first) = source.first_unchained {
            let lines = count(source.unchained as usize, "line");
            text += &format!(
                "{name}: in no chain: {lines} of the record, the first at line {first}: of an earlier release, inserted, or changed\n"
            );
        }
        if source.claimed > 0 {
            let lines = count(source.claimed as usize, "line");
            text += &format!(
                "{name}: without arguments: {lines}, whose hashes show missing lines and no changed ones\n"
            );
        }
        if source.broken > 0 {
            let lines = count(source.broken as usize, "line");
            text += &format!("{name}: not readable: {lines}, as a kill leaves one\n");
        }
        for line in &source.out_of_order {
            text += &format!("{name}: line {line} stands after a later line of its chain\n");
        }
    }
    if chains.is_empty() {
        text += "no line of a chain was found\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use toolcrib_record::Chain;

    use super::*;

    fn kept(pod: &str, chain: &str, second: i64) -> RecordHeadStatus {
        RecordHeadStatus {
            pod: pod.to_owned(),
            pod_uid: format!("uid-{pod}"),
            chain: chain.to_owned(),
            seq: 7,
            hash: "a".repeat(64),
            time: Time(jiff::Timestamp::from_second(second).unwrap()),
        }
    }

    /// A verifier with one line of a chain of a pod.
    fn verifier(pod: &str, chain: &str) -> Verifier {
        let mut line = format!(
            r#"{{"kind":"start","version":1,"pod":"{pod}","timestamp":"2026-11-24T08:00:00Z"}}"#
        )
        .into_bytes();
        Chain::new(chain.to_owned()).seal(&mut line);
        let mut verifier = Verifier::default();
        verifier.push(&line).unwrap();
        verifier
    }

    #[test]
    fn earlier_chains_may_be_rotated_away_and_the_latest_may_not() {
        let heads = vec![
            kept("otter-0", "c3", 3),
            kept("otter-0", "c2", 2),
            kept("otter-0", "c1", 1),
            kept("otter-1", "d1", 1),
        ];
        let chosen = choose(heads, &verifier("otter-0", "c2"));
        let chains: Vec<&str> = chosen.heads.iter().map(|head| &*head.chain).collect();
        assert_eq!(chains, ["c3", "c2"]);
        assert_eq!(Vec::from_iter(chosen.absent_pods), ["otter-1"]);
    }
}
