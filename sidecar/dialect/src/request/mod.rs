//! A runner's request: decodes it, and encodes it for the model with [`Edits`] applied.

pub mod fields;
pub mod known_tools;
pub mod provider_tools;

use std::ops::Range;
use std::sync::LazyLock;

use memchr::memmem::Finder;

use self::fields::REFUSED;
use self::known_tools::KnownTools;
use crate::edits::{DeclaredTools, Edits, ToolDeclaration};
use crate::json::{self, Array, Item, Object};
use crate::read::{flag, optional, present};
use crate::view::{HistoryItem, RequestView, ToolChoice};
use crate::{Dialect, DialectError, anthropic, openai_chat, responses};

/// The body of a request as received, and the positions of the parts that the mediator reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    dialect: Dialect,
    text: String,
    fields: Object,
    history: Vec<Range<usize>>,
    view: RequestView,
}

/// A body that is no valid request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndecodedRequest {
    pub error: DialectError,
    pub body: Vec<u8>,
}

impl DeclaredTools {
    pub fn new(dialect: Dialect, tools: &[ToolDeclaration]) -> Self {
        let declare = match dialect {
            Dialect::OpenaiChat => openai_chat::request::declaration,
            Dialect::AnthropicMessages => anthropic::request::declaration,
            Dialect::OpenaiResponses => responses::request::declaration,
        };
        let declared: Vec<String> = tools.iter().map(declare).collect();
        Self::joined(&declared)
    }
}

/// Limits the bytes of the model's name, because logs, errors and each line of the record contain
/// it.
const MAX_MODEL: usize = 512;
const MODEL: &str = "a string of at most 512 bytes";

impl Request {
    /// Decodes a body. Errors: not UTF-8, not JSON, a field of a wrong type, a repeated or
    /// ambiguous field, a field that could bypass policy.
    pub fn decode(dialect: Dialect, body: Vec<u8>) -> Result<Self, DialectError> {
        let decoded = Self::decode_or_return(dialect, body, &mut KnownTools::default());
        decoded.map_err(|it| it.error)
    }

    /// Decodes like [`Request::decode`], with the tools of earlier requests; an error has the body.
    pub fn decode_or_return(
        dialect: Dialect,
        body: Vec<u8>,
        known: &mut KnownTools,
    ) -> Result<Self, UndecodedRequest> {
        let text = String::from_utf8(body).map_err(|error| UndecodedRequest {
            error: DialectError::NotUtf8,
            body: error.into_bytes(),
        })?;
        match Self::scan(dialect, &text, known) {
            Ok((fields, history, view)) => Ok(Self {
                dialect,
                text,
                fields,
                history,
                view,
            }),
            Err(error) => Err(UndecodedRequest {
                error,
                body: text.into_bytes(),
            }),
        }
    }

    fn scan(
        dialect: Dialect,
        text: &str,
        known: &mut KnownTools,
    ) -> Result<(Object, Vec<Range<usize>>, RequestView), DialectError> {
        // The history is most of a body, so one pass finds the top-level fields and the history's
        // items.
        let (fields, items) = Object::scan_into(text, history_field(dialect))?;
        let sent = present(text, &fields, "tools");
        let names = sent.and_then(|sent| known.names(dialect, sent));
        fields::unambiguous(text, &fields, names.is_some().then_some("tools"))?;
        if let Some(member) = fields
            .members
            .iter()
            .find(|member| REFUSED.contains(&member.key.as_str()))
        {
            return Err(DialectError::FieldRefused(member.key.to_string()));
        }
        let history = history(dialect, text, &fields, items)?;
        let tools = match names {
            Some(names) => names,
            None => {
                let names = match dialect {
                    Dialect::OpenaiChat => openai_chat::request::tools(text, &fields),
                    Dialect::AnthropicMessages => anthropic::request::tools(text, &fields),
                    Dialect::OpenaiResponses => responses::request::tools(text, &fields),
                }?;
                known.remember(dialect, sent, &names);
                names
            }
        };
        let view = match dialect {
            Dialect::OpenaiChat => openai_chat::request::view(text, &fields, tools),
            Dialect::AnthropicMessages => anthropic::request::view(text, &fields, tools),
            Dialect::OpenaiResponses => responses::request::view(text, &fields, tools),
        }?;
        optional(text, &fields, "model", MODEL, |raw| {
            json::string(raw).filter(|model| model.len() <= MAX_MODEL)
        })?;
        optional(text, &fields, "stream", "true or false", flag)?;
        Ok((fields, history, view))
    }

    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    pub(crate) fn view(&self) -> &RequestView {
        &self.view
    }

    pub fn as_text(&self) -> &str {
        &self.text
    }

    /// The model's name as the runner wrote it, often `provider/model`.
    pub fn model(&self) -> Option<String> {
        self.optional("model", "a string", json::string)
            .unwrap_or_default()
    }

    pub fn stream(&self) -> bool {
        self.optional("stream", "true or false", flag)
            .unwrap_or_default()
            .unwrap_or_default()
    }

    /// Returns true if the runner's stream must end with usage.
    pub fn include_usage(&self) -> bool {
        self.view.include_usage
    }

    /// Number of requested replies (`n`).
    pub fn choices(&self) -> u64 {
        self.view.choices
    }

    /// Names of the runner's tools.
    pub fn tools(&self) -> &[String] {
        &self.view.tools
    }

    pub fn tool_choice(&self) -> &ToolChoice {
        &self.view.tool_choice
    }

    /// Returns true if the runner uses `functions`/`function_call`, and expects `function_call`.
    pub fn legacy_functions(&self) -> bool {
        self.view.legacy_functions
    }

    /// Returns the id of the response that the runner continues (`previous_response_id`), whose
    /// conversation the provider has. `None` in the other dialects.
    pub fn previous_response(&self) -> Option<String> {
        match self.dialect {
            Dialect::OpenaiChat | Dialect::AnthropicMessages => None,
            Dialect::OpenaiResponses => {
                responses::request::previous_response(&self.text, &self.fields)
            }
        }
    }

    /// Returns true if a later request may continue the answer by its id.
    pub fn can_be_continued(&self) -> bool {
        match self.dialect {
            Dialect::OpenaiChat | Dialect::AnthropicMessages => false,
            Dialect::OpenaiResponses => responses::request::stores(&self.text, &self.fields),
        }
    }

    /// Returns the items that the provider gets with these edits, without the context message. Empty
    /// if the answer cannot be continued by its id.
    pub fn input_items(&self, edits: &Edits) -> Result<Vec<String>, DialectError> {
        match self.can_be_continued() {
            true => responses::request::input_items(&self.text, &self.fields, edits),
            false => Ok(Vec::new()),
        }
    }

    /// Returns the messages (Responses: input items), each as its JSON text. An input that is a
    /// plain string is one item.
    pub fn history(&self) -> impl ExactSizeIterator<Item = &str> {
        self.history.iter().map(|range| &self.text[range.clone()])
    }

    /// Returns the body with `edits` applied and every other byte unchanged. Errors: the edits add
    /// tools, but the request refers to state that they would damage (`HeldElsewhere`), or the runner
    /// would fetch the answer later (`FieldRefused`).
    pub fn encode(&self, edits: &Edits) -> Result<Vec<u8>, DialectError> {
        let text = match self.dialect {
            Dialect::OpenaiChat => openai_chat::request::encode(&self.text, &self.fields, edits),
            Dialect::AnthropicMessages => {
                anthropic::request::encode(&self.text, &self.fields, edits)
            }
            Dialect::OpenaiResponses => responses::request::encode(&self.text, &self.fields, edits),
        }?;
        Ok(text.into_bytes())
    }

    /// Refuses a request that makes the provider execute a tool or fetch a url. Errors:
    /// `ProviderSide`.
    pub fn refuse_provider_tools(&self) -> Result<(), DialectError> {
        provider_tools::refuse(self.dialect, &self.text, &self.fields, self.history())
    }

    fn optional<T>(
        &self,
        field: &'static str,
        expected: &'static str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, DialectError> {
        optional(&self.text, &self.fields, field, expected, read)
    }
}

/// Returns true if an item of the history may belong to a model's reply. This cheap test does not
/// decode the item: it may also return true for other items, and it misses a reply only if its role
/// is written with escapes.
pub fn may_be_reply(dialect: Dialect, item: &str) -> bool {
    match dialect {
        Dialect::OpenaiChat | Dialect::AnthropicMessages => {
            static ROLE: LazyLock<Finder> = LazyLock::new(|| Finder::new("assistant"));
            ROLE.find(item.as_bytes()).is_some()
        }
        // In this dialect, calls are items without a role.
        Dialect::OpenaiResponses => true,
    }
}

/// Decodes an item of the history.
pub fn history_item(dialect: Dialect, item: &str) -> Result<HistoryItem, DialectError> {
    match dialect {
        Dialect::OpenaiChat => openai_chat::history::read(item),
        Dialect::AnthropicMessages => anthropic::history::read(item),
        Dialect::OpenaiResponses => responses::history::read(item),
    }
}

/// Returns the reference that a runner may send in place of an item of a reply: the item's id
/// alone. `None` if the item has no id, or the dialect has no references.
pub fn reference(dialect: Dialect, item: &str) -> Option<String> {
    match dialect {
        Dialect::OpenaiChat | Dialect::AnthropicMessages => None,
        Dialect::OpenaiResponses => responses::history::reference(item),
    }
}

/// Renames the calls of an item, and leaves every other byte unchanged.
pub fn rename_calls(
    dialect: Dialect,
    item: &str,
    rename: impl Fn(&str) -> Option<String>,
) -> Result<String, DialectError> {
    match dialect {
        Dialect::OpenaiChat => openai_chat::history::rename_calls(item, &rename),
        Dialect::AnthropicMessages => anthropic::history::rename_calls(item, &rename),
        Dialect::OpenaiResponses => responses::history::rename_calls(item, &rename),
    }
}

fn history_field(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::OpenaiChat | Dialect::AnthropicMessages => "messages",
        Dialect::OpenaiResponses => "input",
    }
}

/// Returns the positions of the messages or input items. `items`: the same positions, if a scan has
/// found them already.
fn history(
    dialect: Dialect,
    text: &str,
    fields: &Object,
    items: Option<Vec<Item>>,
) -> Result<Vec<Range<usize>>, DialectError> {
    if let Some(items) = items {
        return Ok(items.into_iter().map(|item| item.value).collect());
    }
    let field = history_field(dialect);
    let Some(member) = fields.member(field) else {
        return match dialect {
            Dialect::OpenaiChat | Dialect::AnthropicMessages => Err(DialectError::Missing(field)),
            // `previous_response_id` or `prompt` may replace the input.
            Dialect::OpenaiResponses => Ok(Vec::new()),
        };
    };
    let raw = &text[member.value.clone()];
    if dialect == Dialect::OpenaiResponses {
        if json::is_null(raw) {
            return Ok(Vec::new());
        }
        if raw.starts_with('"') {
            return Ok(vec![member.value.clone()]);
        }
    }
    let items = Array::scan(raw).map_err(|_| DialectError::WrongType {
        field,
        expected: "an array",
    })?;
    let start = member.value.start;
    Ok(items
        .items
        .into_iter()
        .map(|item| start + item.value.start..start + item.value.end)
        .collect())
}
