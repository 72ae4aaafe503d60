//! Compares the lines of several sources with their chains.
//!
//! Lines of the same chain and `seq` are merged, so a line is missing only if no source has it. Not
//! detected: changes of bodies, changes after the last line that something else names (a later
//! process, or a head that the caller kept), and a chain that was rewritten up to its end.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::chain::{Digest, Head, Link, LinkKind, short_form};
use crate::line::{Line, UnreadLine};

/// Limits the lines of all sources together. Each takes about 150 bytes of memory.
const MOST_LINES: usize = 4_000_000;
/// Limits the bytes of a chain's id in a `start` line; the mediator's have 16.
const MOST_ID: usize = 64;
/// Limits the different lines with one `seq` that are compared.
const MOST_VARIANTS: usize = 4;

/// Collects the lines of all sources, and then reports.
#[derive(Debug, Default)]
pub struct Verifier {
    chains: BTreeMap<String, ChainLines>,
    sources: Vec<SourceReport>,
    /// The ends of earlier chains that `start` lines name.
    previous: BTreeSet<Head>,
    /// The chain and `seq` of the last line of the source.
    last: Option<(String, u64)>,
    lines: usize,
}

/// The sources have more than [`MOST_LINES`] lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifyError;

impl fmt::Display for VerifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "more than {MOST_LINES} lines: verify the files of fewer pods at once"
        )
    }
}

impl std::error::Error for VerifyError {}

/// The lines of a source that are in no chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceReport {
    pub name: String,
    pub lines: u64,
    /// Lines of the record without the members of a chain: of an earlier release, or inserted. A
    /// line with members after its hash is among them.
    pub unchained: u64,
    /// The number of the first of these lines, counted from 1.
    pub first_unchained: Option<u64>,
    /// Lines whose hash was given beside them and not computed: the arguments are removed.
    pub claimed: u64,
    /// Texts that are no JSON object, such as a line that a kill cut off.
    pub broken: u64,
    /// Numbers of the first lines that stand after a later one of their chain.
    pub out_of_order: Vec<u64>,
}

/// A chain: its extent, and the findings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainReport {
    pub chain: String,
    /// From the `start` line, if it is in a source.
    pub pod: Option<String>,
    pub first: u64,
    pub last: u64,
    /// Hash of the last line.
    pub hash: Digest,
    pub findings: Vec<Finding>,
    /// Number of `model_call` lines that are in no source. Standard output never has them.
    pub absent_asides: u64,
}

impl ChainReport {
    pub fn is_whole(&self) -> bool {
        self.findings.is_empty()
    }

    /// False if only a head names the chain.
    pub fn is_present(&self) -> bool {
        !self.findings.contains(&Finding::Absent)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Finding {
    /// The chain begins at this `seq`: earlier lines were rotated away or removed.
    BeginsAt(u64),
    /// These lines are in no source.
    Missing { from: u64, to: u64 },
    /// No line with this `seq` has the hash that the next line, or a head, names.
    Changed(u64),
    /// Sources differ in this line, and this source has the changed one.
    ChangedIn { seq: u64, source: String },
    /// A `model_call` line after this `seq` was changed or removed.
    ChangedAside(u64),
    /// The chain ends before the head that was given, or that a later process names.
    TailCut { last: u64, head: u64 },
    /// No line of the chain is in a source, although a head was given.
    Absent,
}

impl Finding {
    /// False for findings that rotation explains.
    pub fn is_alarm(&self) -> bool {
        match self {
            Finding::BeginsAt(_) => false,
            Finding::Missing { .. }
            | Finding::Changed(_)
            | Finding::ChangedIn { .. }
            | Finding::ChangedAside(_)
            | Finding::TailCut { .. }
            | Finding::Absent => true,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::BeginsAt(seq) => write!(f, "begins at {seq}: earlier lines are in no source"),
            Finding::Missing { from, to } if from == to => write!(f, "missing: line {from}"),
            Finding::Missing { from, to } => write!(f, "missing: lines {from} to {to}"),
            Finding::Changed(seq) => write!(
                f,
                "changed: line {seq} does not have the hash that the next one names"
            ),
            Finding::ChangedIn { seq, source } => {
                write!(f, "changed: line {seq} in {source}")
            }
            Finding::ChangedAside(seq) => write!(
                f,
                "changed: a model_call line after line {seq} was changed or removed"
            ),
            Finding::TailCut { last, head } => write!(
                f,
                "cut off: ends at line {last}, and a line {head} is known to have existed"
            ),
            Finding::Absent => f.write_str("missing: no line of this chain is in a source"),
        }
    }
}

/// Whether the lines of a source stand in the order in which they were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    AsWritten,
    Any,
}

#[derive(Debug, Default)]
struct ChainLines {
    pod: Option<String>,
    lines: BTreeMap<u64, Vec<ChainLine>>,
    /// The `model_call` lines by `after`: the hash of each, and of the line before it.
    asides: BTreeMap<u64, BTreeMap<Digest, Digest>>,
}

#[derive(Clone, Copy, Debug)]
struct ChainLine {
    digest: Digest,
    prev: Digest,
    aside: Option<Digest>,
    /// Index of the first source with it.
    source: usize,
}

impl Verifier {
    /// Begins a source: its lines follow.
    pub fn source(&mut self, name: &str) {
        self.last = None;
        self.sources.push(SourceReport {
            name: name.to_owned(),
            ..SourceReport::default()
        });
    }

    /// Returns whether a source has a line of the chain.
    pub fn has_chain(&self, chain: &str) -> bool {
        self.chains.contains_key(chain)
    }

    /// Returns the pods that `start` lines of the sources name.
    pub fn pods(&self) -> BTreeSet<&str> {
        let chains = self.chains.values();
        chains.filter_map(|chain| chain.pod.as_deref()).collect()
    }

    /// Adds the next line of the source that was begun last.
    pub fn push(&mut self, line: &[u8]) -> Result<(), VerifyError> {
        self.add(line, short_form(line), Order::AsWritten)
    }

    /// Adds a line that a collector stored: in any order, and perhaps more than once. `claim`: the place
    /// and hash of the whole line, if its arguments are removed.
    pub fn push_exported(
        &mut self,
        line: &[u8],
        claim: Option<Link<'_>>,
    ) -> Result<(), VerifyError> {
        if claim.is_none() {
            return self.add(line, short_form(line), Order::Any);
        }
        self.add(line, claim, Order::Any)?;
        if let Some(source) = self.sources.last_mut() {
            source.claimed += 1;
        }
        Ok(())
    }

    fn add(
        &mut self,
        line: &[u8],
        link: Option<Link<'_>>,
        order: Order,
    ) -> Result<(), VerifyError> {
        if self.sources.is_empty() {
            self.source("");
        }
        let index = self.sources.len() - 1;
        let number = {
            let source = &mut self.sources[index];
            source.lines += 1;
            source.lines
        };
        let Some(link) = link else {
            let source = &mut self.sources[index];
            match Line::parse(line) {
                Err(UnreadLine::OtherKind) | Ok(Line::Gap(_)) => {}
                Err(UnreadLine::Broken) => source.broken += 1,
                Ok(
                    Line::Start(_)
                    | Line::Rules(_)
                    | Line::ModelCall(_)
                    | Line::Question(_)
                    | Line::Decision(_)
                    | Line::Intent(_)
                    | Line::Turn(_),
                ) => {
                    source.unchained += 1;
                    source.first_unchained.get_or_insert(number);
                }
            }
            return Ok(());
        };
        if self.lines >= MOST_LINES {
            return Err(VerifyError);
        }
        let chain = self
            .chains
            .entry(link.chain.clone().into_owned())
            .or_default();
        match link.kind {
            LinkKind::Aside { after } => {
                let known = chain.asides.entry(after).or_default();
                self.lines += usize::from(known.insert(link.digest, link.prev).is_none());
            }
            LinkKind::Chained { seq, aside } => {
                let variants = chain.lines.entry(seq).or_default();
                let is_new = variants.iter().all(|it| it.digest != link.digest);
                if is_new && variants.len() < MOST_VARIANTS {
                    self.lines += 1;
                    variants.push(ChainLine {
                        digest: link.digest,
                        prev: link.prev,
                        aside,
                        source: index,
                    });
                }
                if is_new
                    && seq == 0
                    && let Ok(Line::Start(start)) = Line::parse(line)
                {
                    chain.pod = Some(start.pod.into_owned());
                    let named = start.previous.filter(|head| head.chain.len() <= MOST_ID);
                    self.previous.extend(named);
                }
                let is_late = order == Order::AsWritten
                    && self
                        .last
                        .as_ref()
                        .is_some_and(|(chain, last)| *chain == *link.chain && *last >= seq);
                let late = &mut self.sources[index].out_of_order;
                if is_late && late.len() < 10 {
                    late.push(number);
                }
                self.last = Some((link.chain.into_owned(), seq));
            }
        }
        Ok(())
    }

    /// Reports on all sources. `heads`: lines that the caller knows from elsewhere, besides those that
    /// later processes name ([`crate::StartLine::previous`]). A chain that is in no source is reported
    /// if the caller named it; one that only a later process names was rotated away.
    pub fn finish(self, heads: &[Head]) -> (Vec<ChainReport>, Vec<SourceReport>) {
        let mut known: BTreeMap<&str, Heads<'_>> = BTreeMap::new();
        for head in heads.iter().chain(&self.previous) {
            let of_chain = known.entry(&head.chain).or_default();
            let of_line = of_chain.entry(head.seq).or_default();
            if of_line.len() < MOST_VARIANTS {
                of_line.push(head);
            }
        }
        let none = Heads::new();
        let mut reports: Vec<ChainReport> = self
            .chains
            .iter()
            .filter_map(|(id, chain)| {
                chain.report(id, known.get(&**id).unwrap_or(&none), &self.sources)
            })
            .collect();
        let absent = heads
            .iter()
            .filter(|head| !self.chains.contains_key(&head.chain));
        let absent: BTreeMap<&str, &Head> = absent.map(|head| (&*head.chain, head)).collect();
        reports.extend(absent.into_values().map(|head| ChainReport {
            chain: head.chain.clone(),
            pod: None,
            first: 0,
            last: head.seq,
            hash: head.hash,
            findings: vec![Finding::Absent],
            absent_asides: 0,
        }));
        (reports, self.sources)
    }
}

/// The known lines of one chain, by `seq`.
type Heads<'a> = BTreeMap<u64, Vec<&'a Head>>;

impl ChainLines {
    fn report(&self, id: &str, heads: &Heads<'_>, sources: &[SourceReport]) -> Option<ChainReport> {
        let (first, last) = (*self.lines.keys().next()?, *self.lines.keys().next_back()?);
        let mut findings = BTreeSet::new();
        let mut absent_asides = 0;
        // From the end, since each line is known by the one after it.
        let mut after: Option<(u64, ChainLine)> = None;
        let mut hash = Digest::NONE;
        for (&seq, variants) in self.lines.iter().rev() {
            if let Some((next, _)) = after
                && next > seq + 1
            {
                findings.insert((
                    seq + 1,
                    1,
                    Finding::Missing {
                        from: seq + 1,
                        to: next - 1,
                    },
                ));
            }
            let next = after.filter(|(next, _)| *next == seq + 1);
            let named = next.map(|(_, line)| line.prev);
            let known = heads.get(&seq).map_or(&[][..], Vec::as_slice);
            let hashes = known.iter().map(|head| head.hash);
            let named: Vec<Digest> = hashes.chain(named).collect();
            let is_named = |line: &&ChainLine| named.iter().all(|hash| *hash == line.digest);
            let right = match named.is_empty() {
                true => variants.first(),
                false => variants.iter().find(is_named),
            };
            match right {
                Some(right) => {
                    let others = variants.iter().filter(|it| it.digest != right.digest);
                    for other in others {
                        let source = sources[other.source].name.clone();
                        findings.insert((seq, 2, Finding::ChangedIn { seq, source }));
                    }
                }
                None => {
                    findings.insert((seq, 2, Finding::Changed(seq)));
                }
            }
            let Some(line) = right.or(variants.first()) else {
                continue;
            };
            if seq == last {
                hash = line.digest;
            }
            let asides: BTreeSet<Digest> = next
                .and_then(|(_, line)| line.aside)
                .into_iter()
                .chain(known.iter().filter_map(|head| head.aside))
                .collect();
            for aside in asides {
                match self.asides.get(&seq) {
                    None => absent_asides += 1,
                    Some(known) if leads_to(known, aside, line.digest) => {}
                    // A changed line proves nothing about its `model_call` lines.
                    Some(_) if right.is_none() => {}
                    Some(_) => {
                        findings.insert((seq, 3, Finding::ChangedAside(seq)));
                    }
                }
            }
            // Inserted `model_call` lines: the next line names none.
            if let Some((_, next)) = next
                && next.aside.is_none()
                && self.asides.contains_key(&seq)
            {
                findings.insert((seq, 3, Finding::ChangedAside(seq)));
            }
            after = Some((seq, *line));
        }
        if let Some((0, line)) = after
            && line.prev != Digest::NONE
        {
            findings.insert((0, 2, Finding::Changed(0)));
        }
        if first > 0 {
            findings.insert((0, 0, Finding::BeginsAt(first)));
        }
        if let Some(&head) = heads.keys().next_back()
            && head > last
        {
            findings.insert((last, 4, Finding::TailCut { last, head }));
        }
        Some(ChainReport {
            chain: id.to_owned(),
            pod: self.pod.clone(),
            first,
            last,
            hash,
            findings: findings
                .into_iter()
                .map(|(_, _, finding)| finding)
                .collect(),
            absent_asides,
        })
    }
}

/// True if the known `model_call` lines form exactly one path from `last` back to `from`.
fn leads_to(known: &BTreeMap<Digest, Digest>, last: Digest, from: Digest) -> bool {
    let mut at = last;
    for walked in 1..=known.len() {
        let Some(prev) = known.get(&at) else {
            return false;
        };
        if *prev == from {
            return walked == known.len();
        }
        at = *prev;
    }
    false
}
