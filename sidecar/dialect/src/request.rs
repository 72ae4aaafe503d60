//! A runner's request, and the edits that are made before it goes to the model.

use std::ops::Range;
use std::sync::Arc;

use crate::json::{self, Array, Item, Object};
use crate::{Dialect, DialectError, anthropic, fields, openai_chat, provider_tools, responses};

/// The body of a request as received, and the positions of the parts that matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    dialect: Dialect,
    text: String,
    fields: Object,
    history: Vec<Range<usize>>,
    view: RequestView,
}

/// The fields that the mediator uses; each dialect's module reads them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestView {
    /// Names of the runner's tools, in order; built-in tools by their type.
    pub tools: Vec<String>,
    pub tool_choice: ToolChoice,
    pub choices: u64,
    pub include_usage: bool,
    pub legacy_functions: bool,
}

/// The runner's `tool_choice`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    #[default]
    Unset,
    Auto,
    None,
    /// At least one call (OpenAI `required`, Anthropic `any`).
    Required,
    /// This tool.
    Named(String),
    /// One of these tools, or text.
    AllowedAuto(Vec<String>),
    /// One of these tools.
    AllowedRequired(Vec<String>),
    /// A built-in tool of the provider, or an unknown form: kept unchanged.
    Other,
}

impl ToolChoice {
    /// Returns the tools that the choice names; they must exist.
    pub fn names(&self) -> &[String] {
        match self {
            ToolChoice::Named(name) => std::slice::from_ref(name),
            ToolChoice::AllowedAuto(names) | ToolChoice::AllowedRequired(names) => names,
            ToolChoice::Unset
            | ToolChoice::Auto
            | ToolChoice::None
            | ToolChoice::Required
            | ToolChoice::Other => &[],
        }
    }
}

/// The declaration of a tool that is added to the runner's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolDeclaration {
    pub name: String,
    pub description: String,
    /// The schema as JSON text.
    pub schema: String,
}

/// Declarations in a dialect's format: encoded once, put into every request. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeclaredTools(Arc<str>);

impl DeclaredTools {
    pub fn new(dialect: Dialect, tools: &[ToolDeclaration]) -> Self {
        let declare = match dialect {
            Dialect::OpenaiChat => openai_chat::request::declaration,
            Dialect::AnthropicMessages => anthropic::request::declaration,
            Dialect::OpenaiResponses => responses::request::declaration,
        };
        let declared: Vec<String> = tools.iter().map(declare).collect();
        Self(declared.join(",").into())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the elements of a JSON array, without its brackets.
    pub(crate) fn elements(&self) -> Option<String> {
        (!self.is_empty()).then(|| self.0.to_string())
    }
}

/// Items to insert into the history before the runner's item `before` (its length: at the end).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Insertion {
    pub before: usize,
    pub items: Vec<String>,
    /// Number of the runner's items, from `before` on, that they replace.
    pub replaced: usize,
}

/// The changes of a request on its way to the model. Parts without an edit stay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edits {
    /// The model's name without its provider.
    pub model: String,
    pub stream: StreamEdit,
    /// Write legacy `functions` and `function_call` as `tools` and `tool_choice`.
    pub normalize_legacy: bool,
    /// Tools to add, encoded in the request's dialect.
    pub tools: DeclaredTools,
    pub tool_choice: ToolChoiceEdit,
    /// New names for tools in `tool_choice`: pairs of the runner's name and the presented one.
    pub choice_names: Vec<(String, String)>,
    /// Items to insert into the runner's history, by position.
    pub inserted: Vec<Insertion>,
    /// Items to append to the runner's history.
    pub appended: Vec<String>,
    /// A document for the system prompt, after the runner's text: the same bytes in each request
    /// keep a provider's prompt cache warm.
    pub prompt: Option<String>,
    /// A context message, placed late so that the bytes before it stay stable. It has the user's
    /// role: data must not get the authority of a system prompt.
    pub context: Option<String>,
    /// Id of the provider's container that the model used in an earlier round, if the runner names
    /// none: the container has the files of that round.
    pub container: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToolChoiceEdit {
    #[default]
    Keep,
    /// No call is forced any longer.
    Auto,
    /// Text only.
    None,
}

/// The form of the model's answer, independent of the runner's choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamEdit {
    #[default]
    Keep,
    /// In one piece (and without `stream_options`).
    Whole,
    /// As a stream that ends with usage.
    Stream,
}

impl Edits {
    /// Changes only the model's name.
    pub fn new(model: impl Into<String>) -> Self {
        Self {
            model: model.into(),
            ..Self::default()
        }
    }
}

/// The content of a history item, without the details that runners change when they store it: order
/// of keys, white space, `null` against `""`, thinking blocks, cache marks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryItem {
    pub role: String,
    pub parts: Vec<HistoryPart>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HistoryPart {
    Text(String),
    Call {
        id: String,
        name: String,
        arguments: String,
    },
    Result {
        call_id: String,
        content: String,
    },
    /// Any other part (images, files), as its JSON text.
    Other(String),
}

/// Fields that could direct a provider that is itself a proxy past policy: to another address,
/// credential, model or route. No dialect has any of them.
pub(crate) const REFUSED: [&str; 27] = [
    "api_base",
    "api_key",
    "api_type",
    "api_version",
    "azure_ad_token",
    "base_url",
    "context_window_fallbacks",
    "content_policy_fallbacks",
    "custom_llm_provider",
    "default_headers",
    "deployment_id",
    "endpoint",
    "extra_body",
    "extra_headers",
    "extra_query",
    "fallbacks",
    "headers",
    "litellm_params",
    "model_list",
    "models",
    "organization_id",
    "provider",
    "proxy",
    "route",
    "router_settings",
    "routing",
    "user_config",
];

/// Limits the bytes of the model's name, because logs, errors and each line of the record contain
/// it.
const MAX_MODEL: usize = 512;
const MODEL: &str = "a string of at most 512 bytes";

impl Request {
    /// Decodes a body. Errors: not UTF-8, not JSON, a field of a wrong type, a repeated or
    /// ambiguous field, a field that could bypass policy.
    pub fn decode(dialect: Dialect, body: Vec<u8>) -> Result<Self, DialectError> {
        let text = String::from_utf8(body).map_err(|_| DialectError::NotUtf8)?;
        // The history is most of a body: one pass finds the field and its items.
        let (fields, items) = Object::scan_into(&text, history_field(dialect))?;
        fields::unambiguous(&text, &fields)?;
        if let Some(member) = fields
            .members
            .iter()
            .find(|member| REFUSED.contains(&member.key.as_str()))
        {
            return Err(DialectError::FieldRefused(member.key.to_string()));
        }
        let history = history(dialect, &text, &fields, items)?;
        let view = match dialect {
            Dialect::OpenaiChat => openai_chat::request::view(&text, &fields),
            Dialect::AnthropicMessages => anthropic::request::view(&text, &fields),
            Dialect::OpenaiResponses => responses::request::view(&text, &fields),
        }?;
        let request = Self {
            dialect,
            text,
            fields,
            history,
            view,
        };
        request.optional("model", MODEL, |raw| {
            json::string(raw).filter(|model| model.len() <= MAX_MODEL)
        })?;
        request.optional("stream", "true or false", flag)?;
        Ok(request)
    }

    pub fn dialect(&self) -> Dialect {
        self.dialect
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

    /// The messages (Responses: input items), each as its JSON text. A plain string as input is one
    /// item.
    pub fn history(&self) -> impl ExactSizeIterator<Item = &str> {
        self.history.iter().map(|range| &self.text[range.clone()])
    }

    /// Returns the body with `edits` applied and every other byte unchanged. Errors: tools are
    /// added although a part of the conversation is stored elsewhere (`HeldElsewhere`), or the
    /// answer would be fetched later (`FieldRefused`).
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

/// Returns true if an item of the history may be (part of) a model's reply. Does not decode; may
/// return true for other items, but never false for a reply whose role has no escapes.
pub fn may_be_reply(dialect: Dialect, item: &str) -> bool {
    match dialect {
        Dialect::OpenaiChat | Dialect::AnthropicMessages => item.contains("assistant"),
        // Calls are items of their own there, and have no role.
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

/// Returns the form in which a runner may refer to an item of a reply by id alone. `None` if the
/// item has no id, or the dialect has no such form.
pub fn reference(dialect: Dialect, item: &str) -> Option<String> {
    match dialect {
        Dialect::OpenaiChat | Dialect::AnthropicMessages => None,
        Dialect::OpenaiResponses => responses::history::reference(item),
    }
}

/// Renames the calls of an item; every other byte stays.
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

/// Reads a field that may be missing or `null`, but not of another type.
pub(crate) fn optional<T>(
    text: &str,
    fields: &Object,
    field: &'static str,
    expected: &'static str,
    read: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, DialectError> {
    match fields.get(text, field).filter(|raw| !json::is_null(raw)) {
        None => Ok(None),
        Some(raw) => read(raw)
            .map(Some)
            .ok_or(DialectError::WrongType { field, expected }),
    }
}

pub(crate) fn flag(raw: &str) -> Option<bool> {
    match raw {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

fn history_field(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::OpenaiChat | Dialect::AnthropicMessages => "messages",
        Dialect::OpenaiResponses => "input",
    }
}

/// `items`: their positions, if known already.
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
