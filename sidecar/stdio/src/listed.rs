//! The arguments that must be mirrored in headers, according to the child's last tool list.
//!
//! Invariants: the memory is bounded; a header is required only after some client received the
//! tool's schema from the running child.

use std::collections::HashMap;

use http::HeaderMap;
use parking_lot::{Mutex, MutexGuard};
use serde::Deserialize;
use serde_json::value::RawValue;
use toolcrib_mcp::header::check_mirrored;
use toolcrib_mcp::{Fault, members};

/// Limits the bytes of the kept schemas. Tools whose schemas do not fit are not checked: the child
/// reads the body anyway.
const ROOM: usize = 1024 * 1024;

/// Schemas by tool name.
#[derive(Debug, Default)]
pub struct ListedTools(Mutex<HashMap<String, String>>);

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    tools: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Tool<'a> {
    name: String,
    #[serde(borrow)]
    input_schema: &'a RawValue,
}

impl ListedTools {
    /// Remembers the marked schemas of a `tools/list` result: all tools, or one page of them.
    pub fn learn(&self, page: &RawValue) {
        let Ok(Page { tools }) = serde_json::from_str(page.get()) else {
            return;
        };
        let size = |name: &str, schema: &str| name.len() + schema.len();
        let mut schemas = self.schemas();
        let mut used: usize = schemas.iter().map(|(name, it)| size(name, it)).sum();
        for tool in tools {
            let Ok(Tool { name, input_schema }) = serde_json::from_str(tool.get()) else {
                continue;
            };
            if let Some(before) = schemas.remove(&name) {
                used -= size(&name, &before);
            }
            let schema = input_schema.get();
            let more = size(&name, schema);
            if schema.contains("x-mcp-header") && used + more <= ROOM {
                used += more;
                schemas.insert(name, schema.to_owned());
            }
        }
    }

    /// Checks that the headers of a `tools/call` with these `params` agree with its arguments.
    pub fn check(&self, headers: &HeaderMap, params: Option<&RawValue>) -> Result<(), Fault> {
        let schemas = self.schemas();
        if schemas.is_empty() {
            return Ok(());
        }
        let params = params.and_then(members).unwrap_or_default();
        let name = params.get("name");
        let name: Option<String> = name.and_then(|it| serde_json::from_str(it.get()).ok());
        let Some(schema) = name.and_then(|name| schemas.get(&name)) else {
            return Ok(());
        };
        let arguments = params.get("arguments").map_or("{}", |it| it.get());
        check_mirrored(headers, schema, arguments)
    }

    fn schemas(&self) -> MutexGuard<'_, HashMap<String, String>> {
        // Each change is one step, so a panic leaves no partial change.
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use serde_json::{Value, json};
    use toolcrib_mcp::raw;

    use super::*;

    fn page(name: &str, property: Value) -> Box<RawValue> {
        let schema = json!({"type": "object", "properties": {"pond": property}});
        raw(&json!({"tools": [{"name": "dive"}, {"name": name, "inputSchema": schema}]}))
    }

    fn marked() -> Value {
        json!({"type": "string", "x-mcp-header": "Pond"})
    }

    fn is_let_in(listed: &ListedTools, name: &str, said: Option<&'static str>) -> bool {
        let mut headers = HeaderMap::new();
        if let Some(said) = said {
            headers.insert("mcp-param-pond", HeaderValue::from_static(said));
        }
        let params = raw(&json!({"name": name, "arguments": {"pond": "north"}}));
        listed.check(&headers, Some(&params)).is_ok()
    }

    #[test]
    fn marked_arguments_are_checked_after_their_tool_was_listed() {
        let listed = ListedTools::default();
        assert!(is_let_in(&listed, "swim", None));
        listed.learn(&page("swim", marked()));
        assert!(is_let_in(&listed, "swim", Some("north")));
        assert!(!is_let_in(&listed, "swim", Some("south")));
        assert!(!is_let_in(&listed, "swim", None));
        assert!(is_let_in(&listed, "dive", None));
    }

    #[test]
    fn the_last_list_counts_and_a_further_page_adds_to_it() {
        let listed = ListedTools::default();
        listed.learn(&page("swim", marked()));
        listed.learn(&page("fish", marked()));
        assert!(!is_let_in(&listed, "swim", None));
        assert!(!is_let_in(&listed, "fish", None));
        listed.learn(&page("swim", json!({"type": "string"})));
        assert!(is_let_in(&listed, "swim", None));
        assert!(!is_let_in(&listed, "fish", None));
    }

    #[test]
    fn remembered_schemas_are_bounded() {
        let listed = ListedTools::default();
        let long = json!({"type": "string", "x-mcp-header": "Pond", "title": "x".repeat(ROOM / 2)});
        for name in ["swim", "fish", "swim"] {
            listed.learn(&page(name, long.clone()));
        }
        assert!(!is_let_in(&listed, "swim", None));
        assert!(is_let_in(&listed, "fish", None));
    }
}
