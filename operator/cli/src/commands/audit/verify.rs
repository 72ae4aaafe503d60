//! `audit verify`: finds missing, changed and cut off lines of a record.

use std::process::ExitCode;

use anyhow::Context as _;
use toolcrib_bounds::count;
use toolcrib_record::{ChainReport, SourceReport, Verifier};

use crate::args::VerifyArgs;
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
    let (chains, sources) = verifier.finish(&args.head);
    let text = text(&chains, &sources);
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
