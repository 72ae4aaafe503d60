//! The edits of a request on its way to the model.
//!
//! Not here: applying them, which is the work of each dialect's module.

use std::sync::Arc;

/// The changes of a request on its way to the model. Everything else stays unchanged.
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
    pub previous: PreviousResponse,
    /// New names for tools in `tool_choice`: pairs of the runner's name and the presented one.
    pub choice_names: Vec<(String, String)>,
    /// Items to insert into the runner's history, by position.
    pub inserted: Vec<Insertion>,
    /// Items to append to the runner's history.
    pub appended: Vec<String>,
    /// A document for the end of the system prompt. If its bytes are the same in each request, the
    /// provider's prompt cache hits.
    pub prompt: Option<String>,
    /// A context message, placed late so that the bytes before it stay stable. It has the user's
    /// role: data must not get the authority of a system prompt.
    pub context: Option<String>,
    /// Id of the provider's container from an earlier round, which has that round's files. Ignored
    /// if the runner names a container.
    pub container: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToolChoiceEdit {
    #[default]
    Keep,
    /// `auto` in place of a choice that forces a call.
    Auto,
    /// Text only.
    None,
}

/// The response after which the provider continues (`previous_response_id`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PreviousResponse {
    /// The one that the runner names, if any.
    #[default]
    Keep,
    /// The one with this id.
    Set(String),
    /// None: the input has the whole conversation.
    Drop,
}

/// The form of the model's answer, independent of the runner's choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamEdit {
    #[default]
    Keep,
    /// As one JSON body, and without `stream_options`.
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

/// Items to insert into the history before the runner's item `before`, or at the end if `before` is
/// the history's length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Insertion {
    pub before: usize,
    pub items: Vec<String>,
    /// Number of the runner's items, from `before` on, that `items` replaces.
    pub replaced: usize,
}

/// The declaration of a tool that is added to the runner's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolDeclaration {
    pub name: String,
    pub description: String,
    /// The schema as JSON text.
    pub schema: String,
}

/// Tool declarations in a dialect's format, encoded once for all requests. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeclaredTools(Arc<str>);

impl DeclaredTools {
    /// Joins declarations that a dialect has encoded.
    pub(crate) fn joined(declarations: &[String]) -> Self {
        Self(declarations.join(",").into())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the declarations as the elements of a JSON array, without its brackets. `None` if
    /// there are none.
    pub(crate) fn elements(&self) -> Option<String> {
        (!self.is_empty()).then(|| self.0.to_string())
    }
}
