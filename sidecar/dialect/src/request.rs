//! A runner's request, and the edits that are made before it goes to the model.

use std::ops::Range;
use std::sync::Arc;

use crate::json::{self, Array, Item, Object};
use crate::{Dialect, DialectError, anthropic, fields, openai_chat, provider_tools, responses};

/// A request's body as it came, and where the parts that matter are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    dialect: Dialect,
    text: String,
    fields: Object,
    history: Vec<Range<usize>>,
    view: RequestView,
}

/// The few fields that matter; each dialect's module reads them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestView {
    /// Names the runner declared, in order; built-in tools by their type.
    pub tools: Vec<String>,
    pub tool_choice: ToolChoice,
    pub choices: u64,
    pub include_usage: bool,
    pub legacy_functions: bool,
}

/// What the runner asked the model to do about tools.
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
    /// One of these, or text.
    AllowedAuto(Vec<String>),
    /// One of these.
    AllowedRequired(Vec<String>),
    /// A built-in of the provider, or a form this release does not know: kept as it is.
    Other,
}

impl ToolChoice {
    /// The tools it names, which must exist.
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

/// A tool that is put beside the runner's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolDeclaration {
    pub name: String,
    pub description: String,
    /// JSON text.
    pub schema: String,
}

/// Tools in a dialect's words: written once, put into every request. Cheap to clone.
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

    /// Elements of a JSON array, without its brackets.
    pub(crate) fn elements(&self) -> Option<String> {
        (!self.is_empty()).then(|| self.0.to_string())
    }
}

/// Items for the history, before the runner's item `before` (its length: at the end).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Insertion {
    pub before: usize,
    pub items: Vec<String>,
    /// How many of the runner's own, from there, they stand for.
    pub replaced: usize,
}

/// Everything that is changed on the way to the model. What is not named here stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edits {
    /// The model's name without its provider.
    pub model: String,
    pub stream: StreamEdit,
    /// Write legacy `functions`, `function_call` as `tools`, `tool_choice`.
    pub normalize_legacy: bool,
    /// Of the request's dialect.
    pub tools: DeclaredTools,
    pub tool_choice: ToolChoiceEdit,
    /// Tools that `tool_choice` names, by the names they are presented under.
    pub spell_choice: Vec<(String, String)>,
    /// Into the runner's history, by position.
    pub inserted: Vec<Insertion>,
    /// After the runner's history.
    pub appended: Vec<String>,
    /// A document for the system prompt, after what the runner wrote there: the same bytes
    /// in each request keep a provider's prompt cache warm.
    pub prompt: Option<String>,
    /// A context message, placed late so that what stands before it stays byte-stable. It
    /// speaks as the user: data must not get the authority of a system prompt.
    pub context: Option<String>,
    /// The provider's machine on which the model worked in an earlier round, where the runner
    /// names none: what it left there is to be there.
    pub container: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToolChoiceEdit {
    #[default]
    Keep,
    /// No longer any call in particular.
    Auto,
    /// Text only.
    None,
}

/// How the model is to answer, whatever the runner asked for.
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
    /// Nothing but the model's name.
    pub fn new(model: impl Into<String>) -> Self {
        Self {
            model: model.into(),
            ..Self::default()
        }
    }
}

/// What an item of the history says, without what runners change when they store it:
/// order of keys, white space, `null` against `""`, thinking blocks, cache marks.
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
    /// Anything else (images, files), as its JSON text.
    Other(String),
}

/// Fields by which a body would steer a provider that is itself a proxy past policy: to
/// another address, credential, model or route. No dialect has any of them.
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

/// Names stand in logs, errors and each line of the record, which a request must not fill.
const MAX_MODEL: usize = 512;
const MODEL: &str = "a string of at most 512 bytes";

impl Request {
    /// Reads a body. Errors: not UTF-8, not JSON, a field of a wrong type, a field
    /// that is repeated or that another reader takes for another one, a field that steers.
    pub fn decode(dialect: Dialect, body: Vec<u8>) -> Result<Self, DialectError> {
        let text = String::from_utf8(body).map_err(|_| DialectError::NotUtf8)?;
        // The history is most of a body: one pass finds it and the items in it.
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

    /// As the runner wrote it, often `provider/model`.
    pub fn model(&self) -> Option<String> {
        self.optional("model", "a string", json::string)
            .unwrap_or_default()
    }

    pub fn stream(&self) -> bool {
        self.optional("stream", "true or false", flag)
            .unwrap_or_default()
            .unwrap_or_default()
    }

    /// Whether the runner's stream is to end with usage.
    pub fn include_usage(&self) -> bool {
        self.view.include_usage
    }

    /// Replies asked for at once (`n`).
    pub fn choices(&self) -> u64 {
        self.view.choices
    }

    /// Names of the tools the runner declared.
    pub fn tools(&self) -> &[String] {
        &self.view.tools
    }

    pub fn tool_choice(&self) -> &ToolChoice {
        &self.view.tool_choice
    }

    /// The runner speaks `functions`/`function_call`, and gets `function_call` back.
    pub fn legacy_functions(&self) -> bool {
        self.view.legacy_functions
    }

    /// The messages (Responses: input items), each as its JSON text. An input that is a
    /// plain string is one item.
    pub fn history(&self) -> impl ExactSizeIterator<Item = &str> {
        self.history.iter().map(|range| &self.text[range.clone()])
    }

    /// The body with `edits` applied and every other byte as it came. Errors: tools are
    /// put in and a part of the conversation stands elsewhere (`HeldElsewhere`), or the answer
    /// is to be fetched later (`FieldRefused`).
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

    /// Whether the provider is asked to do nothing by itself but to answer: to execute no tool,
    /// to fetch nothing. Errors: `ProviderSide`.
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

/// Whether an item of the history may be (part of) a reply of the model's. Reads nothing:
/// errs towards yes, as far as a role is spelled in plain letters.
pub fn may_be_reply(dialect: Dialect, item: &str) -> bool {
    match dialect {
        Dialect::OpenaiChat | Dialect::AnthropicMessages => item.contains("assistant"),
        // Calls are items of their own there, and have no role.
        Dialect::OpenaiResponses => true,
    }
}

/// What an item of the history says.
pub fn history_item(dialect: Dialect, item: &str) -> Result<HistoryItem, DialectError> {
    match dialect {
        Dialect::OpenaiChat => openai_chat::history::read(item),
        Dialect::AnthropicMessages => anthropic::history::read(item),
        Dialect::OpenaiResponses => responses::history::read(item),
    }
}

/// An item of a reply as the runner may name it, by its id alone. `None`: it has none, or the
/// dialect does not know that.
pub fn reference(dialect: Dialect, item: &str) -> Option<String> {
    match dialect {
        Dialect::OpenaiChat | Dialect::AnthropicMessages => None,
        Dialect::OpenaiResponses => responses::history::reference(item),
    }
}

/// The item with its calls under other names; every other byte stays.
pub fn respell(
    dialect: Dialect,
    item: &str,
    spell: impl Fn(&str) -> Option<String>,
) -> Result<String, DialectError> {
    match dialect {
        Dialect::OpenaiChat => openai_chat::history::respell(item, &spell),
        Dialect::AnthropicMessages => anthropic::history::respell(item, &spell),
        Dialect::OpenaiResponses => responses::history::respell(item, &spell),
    }
}

/// A field that may be missing or `null`, but not of another type.
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

/// `items`: where they are, if that is known already.
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
            // `previous_response_id` or `prompt` may stand for it.
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
