//! Token counts: read from a reply, and replaced by the turn's sums.

use crate::DialectError;
use crate::read::{Counts, present, scan_object, with_members};

/// Tokens of one reply or, summed, of a turn; every count means the same in each dialect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// All input tokens, cached or not.
    pub prompt_tokens: u64,
    /// All output tokens, including reasoning.
    pub completion_tokens: u64,
    /// The part of `prompt_tokens` that was read from the provider's cache.
    pub cache_read_tokens: u64,
    /// The part of `prompt_tokens` that was written to the provider's cache.
    pub cache_write_tokens: u64,
    /// The part of `completion_tokens` that is not shown as text.
    pub reasoning_tokens: u64,
}

impl Usage {
    /// Combines each pair of counts with `join`.
    fn with(self, other: Self, join: fn(u64, u64) -> u64) -> Self {
        Self {
            prompt_tokens: join(self.prompt_tokens, other.prompt_tokens),
            completion_tokens: join(self.completion_tokens, other.completion_tokens),
            cache_read_tokens: join(self.cache_read_tokens, other.cache_read_tokens),
            cache_write_tokens: join(self.cache_write_tokens, other.cache_write_tokens),
            reasoning_tokens: join(self.reasoning_tokens, other.reasoning_tokens),
        }
    }

    /// Takes the larger of each count, for two reports of the same growing reply.
    pub(crate) fn later(self, other: Self) -> Self {
        self.with(other, u64::max)
    }
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        *self = self.with(other, u64::saturating_add);
    }
}

/// The names of the counts in OpenAI's two APIs.
pub(crate) struct Names {
    pub prompt: &'static str,
    pub completion: &'static str,
    pub prompt_details: &'static str,
    pub completion_details: &'static str,
}

const CACHED: &str = "cached_tokens";
const WRITTEN: &str = "cache_write_tokens";
const REASONING: &str = "reasoning_tokens";

impl Names {
    pub(crate) fn read(&self, raw: &str) -> Usage {
        let counts = Counts::of(raw);
        let of_prompt = counts.within(self.prompt_details);
        Usage {
            prompt_tokens: counts.get(self.prompt),
            completion_tokens: counts.get(self.completion),
            cache_read_tokens: of_prompt.get(CACHED),
            cache_write_tokens: of_prompt.get(WRITTEN),
            reasoning_tokens: counts.within(self.completion_details).get(REASONING),
        }
    }

    /// Returns the usage object `raw` with these counts. Its other members stay unchanged.
    pub(crate) fn write(&self, raw: Option<&str>, usage: Usage) -> Result<String, DialectError> {
        let total = usage.prompt_tokens.saturating_add(usage.completion_tokens);
        let raw = with_members(
            raw.unwrap_or("{}"),
            &[
                (self.prompt, usage.prompt_tokens.to_string()),
                (self.completion, usage.completion_tokens.to_string()),
                ("total_tokens", total.to_string()),
            ],
        )?;
        let raw = with_details(
            &raw,
            self.prompt_details,
            &[
                (CACHED, usage.cache_read_tokens),
                (WRITTEN, usage.cache_write_tokens),
            ],
        )?;
        let reasoning = [(REASONING, usage.reasoning_tokens)];
        with_details(&raw, self.completion_details, &reasoning)
    }
}

/// Returns the usage object with `counts` set in its member `of`. A zero is set only in place of an
/// existing count.
pub(crate) fn with_details(
    raw: &str,
    of: &str,
    counts: &[(&str, u64)],
) -> Result<String, DialectError> {
    let fields = scan_object(raw, "usage")?;
    let details = present(raw, &fields, of).unwrap_or("{}");
    let set = counted(details, counts)?;
    if set.is_empty() {
        return Ok(raw.to_string());
    }
    with_members(raw, &[(of, with_members(details, &set)?)])
}

/// Returns the counts to set in `raw`: all that are not zero, and those that `raw` already has.
pub(crate) fn counted<'k>(
    raw: &str,
    counts: &[(&'k str, u64)],
) -> Result<Vec<(&'k str, String)>, DialectError> {
    let fields = scan_object(raw, "usage")?;
    Ok(counts
        .iter()
        .filter(|(key, count)| *count > 0 || fields.member(key).is_some())
        .map(|(key, count)| (*key, count.to_string()))
        .collect())
}
