//! The last step: values in place of references.
//!
//! Pure: the caller reads the Secrets. A missing value removes exactly the items that need it
//! from the files. A source that could not be read keeps the value of the previous compiled
//! Secret, but only for the same reference and the same route.

use crate::compilation::bounds;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use toolcrib_manifest::{Digests, RunnerToken, SecretText};

use crate::canonical::digest::{self, sha256};
use crate::compilation::bounds::Excess;
use crate::compilation::files::{Files, manifest_digest, render};
use crate::compilation::secrets::{each_secret, feed_secrets, tool_secrets};
use crate::compilation::{
    Compilation, FeedSummary, Source, SourceState, ToolSummary, WithheldItem,
};
use crate::names;
use crate::names::{feed_name, provider_name};
use crate::routes::route::recorded;
use crate::{Code, ObjectRef, SecretKeyRef};

/// Limits the annotation that records the place of each value; Kubernetes allows an object 256 KiB
/// of annotations. A reference that is not recorded has no last good value later.
const MAX_RECORDS: usize = 192 * 1024;

/// The compiled Secret as it is to be written.
#[derive(Clone, PartialEq, Eq)]
pub struct CompiledSecret {
    /// The four files; they hold secrets.
    pub files: BTreeMap<String, Vec<u8>>,
    /// Digests, and the place of each reference's value; no values.
    pub annotations: BTreeMap<String, String>,
    pub digests: Digests,
    /// References without a value; the items that need them are not in the files.
    pub missing: BTreeSet<SecretKeyRef>,
    /// References whose value came from the previous compiled Secret.
    pub kept: BTreeSet<SecretKeyRef>,
    /// Tools, feeds and providers left out of the files, because a value is missing or does not
    /// fit.
    pub withheld: Vec<WithheldItem>,
}

impl fmt::Debug for CompiledSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Materialized")
            .field("annotations", &self.annotations)
            .field("missing", &self.missing)
            .field("kept", &self.kept)
            .field("withheld", &self.withheld)
            .finish_non_exhaustive()
    }
}

impl CompiledSecret {
    /// Returns the tools that remain in the files, and the withheld items, for status.
    pub fn given(&self, compiled: &Compilation) -> (Vec<ToolSummary>, Vec<WithheldItem>) {
        let late: BTreeSet<&str> = self.withheld.iter().map(|late| &*late.what).collect();
        let tools = compiled
            .tools
            .iter()
            .filter(|tool| !late.contains(tool.name.as_str()))
            .cloned()
            .collect();
        let mut withheld = compiled.withheld.clone();
        withheld.extend(self.withheld.iter().cloned());
        withheld.sort();
        (tools, withheld)
    }

    /// Returns the feeds that remain in the files, for status.
    pub fn given_feeds(&self, compiled: &Compilation) -> Vec<FeedSummary> {
        let late: BTreeSet<&str> = self.withheld.iter().map(|late| &*late.what).collect();
        let given = |feed: &&FeedSummary| !late.contains(&*format!("feed {}", feed.name));
        compiled.feeds.iter().filter(given).cloned().collect()
    }
}

/// Values of a previous compiled Secret, by reference.
#[derive(Clone, Debug, Default)]
pub struct LastGood(BTreeMap<SecretKeyRef, LastValue>);

#[derive(Clone, Debug)]
struct LastValue {
    value: SecretText,
    record: Record,
}

/// The annotation's record of one reference, without its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    /// File name, `#`, JSON pointer.
    at: String,
    /// The route of the value. Older releases wrote hosts alone.
    #[serde(rename = "hosts")]
    route: BTreeSet<String>,
    uid: String,
    version: String,
}

impl LastGood {
    /// Reads back the values that [`materialize`] wrote. Anything that cannot be parsed counts as
    /// absent: this is a fallback, and no value is the safe answer.
    pub fn read(annotations: &BTreeMap<String, String>, files: &BTreeMap<String, Vec<u8>>) -> Self {
        let records: BTreeMap<String, Record> = annotations
            .get(names::REFERENCES_ANNOTATION)
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default();
        let parsed: BTreeMap<&str, serde_json::Value> = files
            .iter()
            .filter_map(|(name, bytes)| Some((name.as_str(), serde_json::from_slice(bytes).ok()?)))
            .collect();
        let kept = records.into_iter().filter_map(|(reference, record)| {
            let reference = SecretKeyRef::parse(&reference)?;
            let (file, pointer) = record.at.split_once('#')?;
            let value = parsed.get(file)?.pointer(pointer)?.as_str()?;
            let value = SecretText::new(value);
            Some((reference, LastValue { value, record }))
        });
        Self(kept.collect())
    }

    fn get(&self, reference: &SecretKeyRef, route: &BTreeSet<String>) -> Option<&LastValue> {
        self.0
            .get(reference)
            .filter(|kept| recorded(&kept.record.route, route))
    }
}

/// Builds the final files. `values` holds those of references whose source is known; `tokens` are
/// the runner's ([`crate::identity::runner_tokens`]).
pub fn materialize(
    compilation: &Compilation,
    values: &dyn Fn(&SecretKeyRef) -> Option<SecretText>,
    last_good: &LastGood,
    tokens: &[RunnerToken],
) -> CompiledSecret {
    let resolved: BTreeMap<&SecretKeyRef, ResolvedValue> = compilation
        .sources
        .iter()
        .filter_map(|(reference, source)| {
            Some((reference, resolve(reference, source, values, last_good)?))
        })
        .collect();
    let missing = compilation
        .sources
        .keys()
        .filter(|reference| !resolved.contains_key(reference))
        .cloned()
        .collect();

    // Remove items without a value, or without room for it, first: the digest covers the final
    // files.
    let mut files = compilation.files.clone();
    let mut withheld: Vec<WithheldItem> =
        withhold(&mut files, &|reference| resolved.contains_key(reference))
            .into_iter()
            .map(|(what, secret)| WithheldItem {
                what,
                code: Code::SecretUnknown,
                message: format!(
                    "its credential, Secret {secret}, could not be read: the condition Resolved of \
                     its Surface or ModelProvider says why"
                ),
            })
            .collect();
    let excess = overflowing(&files, &resolved);
    bounds::remove(
        &mut files,
        &excess.iter().map(|excess| &*excess.what).collect(),
    );
    withheld.extend(excess.into_iter().map(|excess| WithheldItem {
        what: excess.what,
        code: excess.code,
        message: excess.message,
    }));
    let digests = Digests {
        manifest: match withheld.is_empty() {
            true => compilation.manifest_digest.clone(),
            false => manifest_digest(&files),
        },
        credentials: credentials_revision(&resolved),
    };

    let mut places = BTreeMap::new();
    each_secret(&mut files, &mut |at, text| {
        let Some(reference) = SecretKeyRef::from_placeholder(text) else {
            return;
        };
        if let Some(found) = resolved.get(&reference) {
            *text = found.value.clone();
            places.entry(reference).or_insert(at);
        }
    });
    let mut room = MAX_RECORDS;
    let records: BTreeMap<String, Record> = places
        .into_iter()
        .map(|(reference, at)| {
            let found = &resolved[&reference];
            let record = Record {
                at,
                route: compilation.sources[&reference].route.clone(),
                uid: found.uid.clone(),
                version: found.version.clone(),
            };
            (reference.to_string(), record)
        })
        .take_while(|entry| {
            let rest = room.checked_sub(digest::size(entry));
            room = rest.unwrap_or(0);
            rest.is_some()
        })
        .collect();

    files.agent.tokens = tokens.to_vec();
    files.agent.digest = Some(digests.clone());
    let mut rendered = render(&files);
    rendered.remove(names::AGENT_FILE);
    let hashes = rendered
        .iter()
        .map(|(name, text)| (name.clone(), sha256(text.as_bytes())));
    files.agent.files = Some(hashes.collect());
    rendered.insert(names::AGENT_FILE.to_owned(), digest::text(&files.agent));
    let annotations = [
        (names::MANIFEST_DIGEST_ANNOTATION, digests.manifest.clone()),
        (
            names::CREDENTIALS_REVISION_ANNOTATION,
            digests.credentials.clone(),
        ),
        (names::REFERENCES_ANNOTATION, digest::text(&records)),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into();

    CompiledSecret {
        files: rendered
            .into_iter()
            .map(|(name, text)| (name, text.into_bytes()))
            .collect(),
        annotations,
        digests,
        missing,
        kept: resolved
            .iter()
            .filter(|(_, found)| found.kept)
            .map(|(reference, _)| (*reference).clone())
            .collect(),
        withheld,
    }
}

/// Returns the items that do not fit into a Secret once values replace references.
fn overflowing(files: &Files, resolved: &BTreeMap<&SecretKeyRef, ResolvedValue>) -> Vec<Excess> {
    let keys = files.providers.providers.values().map(|one| one.keys.len());
    // No auth has more than two values.
    let values = 2 * (files.tools.tools.len() + files.feeds.0.len()) + keys.sum::<usize>();
    let longest = resolved.values().map(|found| digest::size(&found.value));
    if bounds::surely_fit(files, values, longest.max().unwrap_or(0)) {
        return Vec::new();
    }
    let mut filled = files.clone();
    each_secret(&mut filled, &mut |_, text| {
        let found = SecretKeyRef::from_placeholder(text);
        if let Some(found) = found.and_then(|reference| resolved.get(&reference)) {
            *text = found.value.clone();
        }
    });
    bounds::enforce_filled(&mut filled)
}

struct ResolvedValue {
    value: SecretText,
    uid: String,
    version: String,
    kept: bool,
}

fn resolve(
    reference: &SecretKeyRef,
    source: &Source,
    values: &dyn Fn(&SecretKeyRef) -> Option<SecretText>,
    last_good: &LastGood,
) -> Option<ResolvedValue> {
    match &source.state {
        SourceState::Known {
            uid,
            resource_version,
        } => values(reference).map(|value| ResolvedValue {
            value,
            uid: uid.clone(),
            version: resource_version.clone(),
            kept: false,
        }),
        SourceState::Unknown => last_good
            .get(reference, &source.route)
            .map(|kept| ResolvedValue {
                value: kept.value.clone(),
                uid: kept.record.uid.clone(),
                version: kept.record.version.clone(),
                kept: true,
            }),
    }
}

/// Digests the versions of the Secrets used, which proves a rotation without hashing a secret.
fn credentials_revision(resolved: &BTreeMap<&SecretKeyRef, ResolvedValue>) -> String {
    let versions: BTreeMap<&ObjectRef, (&str, &str)> = resolved
        .iter()
        .map(|(reference, found)| (&reference.secret, (&*found.uid, &*found.version)))
        .collect();
    let lines: String = versions
        .into_iter()
        .map(|(secret, (uid, version))| format!("{secret} {uid} {version}\n"))
        .collect();
    sha256(lines.as_bytes())
}

/// Removes every tool, feed and provider key that refers to something without a value. Returns what
/// was removed, with the Secret that it needs.
fn withhold(
    files: &mut Files,
    has_value: &dyn Fn(&SecretKeyRef) -> bool,
) -> Vec<(String, ObjectRef)> {
    let unread = |text: &SecretText| {
        let reference = SecretKeyRef::from_placeholder(text)?;
        (!has_value(&reference)).then_some(reference.secret)
    };
    let mut withheld = Vec::new();
    files.tools.tools.retain_mut(|tool| {
        let name = tool.name.clone();
        let mut secrets = tool_secrets(tool).into_iter();
        let secret = secrets.find_map(|(_, text)| unread(text));
        let keep = secret.is_none();
        withheld.extend(secret.map(|secret| (name, secret)));
        keep
    });
    files.feeds.0.retain_mut(|feed| {
        let name = feed_name(&feed.source, &feed.name);
        let mut secrets = feed_secrets(feed).into_iter();
        let secret = secrets.find_map(|(_, text)| unread(text));
        let keep = secret.is_none();
        withheld.extend(secret.map(|secret| (name, secret)));
        keep
    });
    files.providers.providers.retain(|name, provider| {
        let mut lost = None;
        provider.keys.retain(|key| {
            let secret = unread(&key.secret);
            let keep = secret.is_none();
            lost = lost.take().or(secret);
            keep
        });
        // A provider that lost all of its keys could only answer 401.
        let keep = !provider.keys.is_empty();
        let lost = lost.filter(|_| !keep);
        let keep = lost.is_none();
        withheld.extend(lost.map(|secret| (provider_name(name), secret)));
        keep
    });
    withheld
}
