//! A dialect that is declared but not read yet: every function says so, typed.

use crate::DialectError;

fn unsupported<T>() -> Result<T, DialectError> {
    Err(DialectError::Unsupported {
        dialect: "this dialect",
        what: "managed tools",
    })
}

pub(crate) mod request {
    use super::unsupported;
    use crate::json::Object;
    use crate::request::RequestView;
    use crate::{DialectError, Edits};

    pub(crate) fn view(_text: &str, _fields: &Object) -> Result<RequestView, DialectError> {
        unsupported()
    }

    pub(crate) fn encode(
        _text: &str,
        _fields: &Object,
        _edits: &Edits,
    ) -> Result<String, DialectError> {
        unsupported()
    }
}

pub(crate) mod reply {
    use super::unsupported;
    use crate::reply::View;
    use crate::{DialectError, ToolResult};

    pub(crate) fn view(_text: &str) -> Result<View, DialectError> {
        unsupported()
    }

    pub(crate) fn items(
        _text: &str,
        _results: &[ToolResult],
        _spell: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Vec<String>, DialectError> {
        unsupported()
    }
}

pub(crate) mod history {
    use super::unsupported;
    use crate::{DialectError, HistoryItem};

    pub(crate) fn read(_item: &str) -> Result<HistoryItem, DialectError> {
        unsupported()
    }

    pub(crate) fn respell(
        _item: &str,
        _spell: &dyn Fn(&str) -> Option<String>,
    ) -> Result<String, DialectError> {
        unsupported()
    }
}

pub(crate) mod answer {
    use super::unsupported;
    use crate::{DialectError, Usage};

    pub(crate) fn whole(_text: &str, _usage: Option<Usage>) -> Result<String, DialectError> {
        unsupported()
    }

    pub(crate) fn stored(_text: &str) -> Result<Vec<String>, DialectError> {
        unsupported()
    }

    pub(crate) fn emptied(_text: &str) -> Result<String, DialectError> {
        unsupported()
    }
}

pub(crate) mod stream {
    use super::unsupported;
    use crate::{DialectError, Usage};

    pub(crate) fn events(_text: &str, _usage: Option<Usage>) -> Result<String, DialectError> {
        unsupported()
    }
}

pub(crate) mod reassembly {
    use super::unsupported;
    use crate::{DialectError, SseEvent, Usage};

    pub(crate) fn whole(_events: &[SseEvent]) -> Result<String, DialectError> {
        unsupported()
    }

    pub(crate) fn usage(_events: &[SseEvent]) -> Usage {
        Usage::default()
    }
}
