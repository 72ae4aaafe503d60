//! Reads a record as calls: from files, or from the mediators' logs in the cluster.
//!
//! All verbs that read a record use this, so they see the same calls and print the same notes about
//! missing lines.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use toolcrib_bounds::count;

use super::{Entry, Joiner, Reach, Splitter, Statistics, read_files};
use crate::args::{OperatorArgs, RecordArgs};
use crate::cluster::{LogPart, PodFacts, Session, WithoutCluster};
use crate::failure::Failure;
use crate::print;

/// The exit code if the record does not reach back to `--since`.
const NOT_WHOLE: u8 = 3;

/// Calls `each` with every entry, of the whole record: the caller filters by time and agent. `agent`
/// narrows the pods whose logs are read. The first error of `each` ends the reading.
pub fn read(
    args: &RecordArgs,
    agent: Option<&str>,
    each: impl FnMut(Entry) -> Result<(), Failure>,
) -> Result<Statistics, Failure> {
    if let (Some(since), Some(until)) = (args.since, args.until)
        && since >= until
    {
        return Err(Failure::usage(format_args!(
            "--since {since} is not before --until {until}, so no call is between them: write the earlier time for --since"
        )));
    }
    let mut sink = Sink {
        each,
        outcome: Ok(()),
    };
    match args.records.is_empty() {
        true => from_logs(args, agent, &mut sink),
        false => from_files(args, &mut sink),
    }
}

/// Takes entries until the first error.
struct Sink<F> {
    each: F,
    outcome: Result<(), Failure>,
}

impl<F: FnMut(Entry) -> Result<(), Failure>> Sink<F> {
    fn take(&mut self, entry: Entry) {
        if self.outcome.is_ok() {
            self.outcome = (self.each)(entry);
        }
    }

    /// Returns the first error, once.
    fn end(&mut self) -> Result<(), Failure> {
        std::mem::replace(&mut self.outcome, Ok(()))
    }
}

fn from_files<F>(args: &RecordArgs, sink: &mut Sink<F>) -> Result<Statistics, Failure>
where
    F: FnMut(Entry) -> Result<(), Failure>,
{
    let mut joiner = Joiner::default();
    let too_long = read_files(&args.records, |_, line| {
        joiner.push(line.text(), |entry| sink.take(entry));
        sink.end()
    })?;
    let mut statistics = joiner.end(|entry| sink.take(entry));
    sink.end()?;
    statistics.broken += too_long;
    if statistics.broken > 0 && statistics.pods.is_empty() {
        return Err(Failure::usage(format_args!(
            "no line of the files is one of a record: name the mediator's history.jsonl, or a saved log of its container"
        )));
    }
    Ok(statistics)
}

fn from_logs<F>(
    args: &RecordArgs,
    agent: Option<&str>,
    sink: &mut Sink<F>,
) -> Result<Statistics, Failure>
where
    F: FnMut(Entry) -> Result<(), Failure>,
{
    let session = Session::open(
        &args.cluster,
        &OperatorArgs::default(),
        WithoutCluster::Records,
    )?;
    let pods = session.mediated_pods(agent)?;
    let mut all = Statistics::default();
    let mut readers: Vec<Option<(Splitter, Joiner)>> = pods.iter().map(|_| None).collect();
    let is_shown = std::io::stderr().is_terminal();
    let part = |index: usize, part: LogPart<'_>| {
        let Some((pod, reader)) = pods.get(index).zip(readers.get_mut(index)) else {
            return;
        };
        let mut out = |entry| sink.take(named(entry, pod));
        match part {
            LogPart::Bytes(bytes) => {
                let (splitter, joiner) = reader.get_or_insert_default();
                splitter.push(bytes, |line| joiner.push(line, &mut out));
            }
            LogPart::End(end) => {
                if let Some((mut splitter, mut joiner)) = reader.take() {
                    splitter.end(|line| joiner.push(line, &mut out));
                    all.broken += splitter.too_long;
                    let read = joiner.end(out);
                    all.broken += read.broken;
                    all.missed += read.missed;
                    all.pods.extend(read.pods);
                }
                if let Err(error) = end {
                    let error = print::brief(&error);
                    eprintln!(
                        "note: the log of pod {} was not read whole: {error}",
                        pod.pod
                    );
                }
            }
        }
    };
    session.mediator_logs(&pods, part, |done| {
        if is_shown {
            eprint!("\rread the logs of {done} of {}", count(pods.len(), "pod"));
        }
    });
    if is_shown {
        eprintln!();
    }
    sink.end()?;
    Ok(all)
}

/// The label of a pod names its Agent; lines have the identity for services, which can be the pod.
fn named(mut entry: Entry, pod: &PodFacts) -> Entry {
    let (agent, namespace) = match &mut entry {
        Entry::Call(call) | Entry::Question(call) => (&mut call.agent, &mut call.namespace),
        Entry::Request(request) => (&mut request.agent, &mut request.namespace),
        Entry::Rules(rules) => (&mut rules.agent, &mut rules.namespace),
    };
    agent.clone_from(&pod.agent.name);
    namespace.clone_from(&pod.agent.namespace);
    entry
}

/// Prints how far back the record reaches, and which parts were not read. `reaches`: also for pods
/// whose record reaches back far enough.
pub fn remarks(args: &RecordArgs, statistics: &Statistics, reaches: bool) -> ExitCode {
    if statistics.broken > 0 {
        let lines = count(statistics.broken as usize, "line");
        eprintln!("note: {lines} could not be read: cut off by a kill, or not of the record");
    }
    if statistics.missed > 0 {
        let lines = count(statistics.missed as usize, "line");
        eprintln!("note: the record itself says that {lines} are missing where it was read");
    }
    let mut code = ExitCode::SUCCESS;
    let is_short = |reach: &Reach| {
        let before = |since| since < reach.earliest;
        !reach.is_whole && args.since.is_some_and(before)
    };
    for (pod, reach) in &statistics.pods {
        let pod = print::plain(pod);
        let Reach { earliest, is_whole } = reach;
        if is_short(reach) {
            code = ExitCode::from(NOT_WHOLE);
            eprintln!(
                "pod {pod}: the earliest line is of {earliest}; for earlier ones, read the files of its record or your log store with -f"
            );
        } else if reaches {
            let begin = if *is_whole {
                "begins at"
            } else {
                "is read from"
            };
            eprintln!("pod {pod}: the record {begin} {earliest}");
        }
    }
    code
}
