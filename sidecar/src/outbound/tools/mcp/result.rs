//! Turns a `tools/call` result into the text for the model. Pure.
//!
//! The text is the structured content if there is any, else the text of the blocks. Linked
//! resources are not fetched, and blocks without text are only described.

use serde::Deserialize;
use serde_json::value::RawValue;

/// Most bytes of a media type or name from a server; longer ones are cut.
const MAX_LABEL: usize = 256;

#[derive(Debug, PartialEq, Eq)]
pub struct CallResult {
    pub is_error: bool,
    /// The structured content with its bytes unchanged, for the output schema.
    pub structured: Option<String>,
    /// The text for the model: the structured content, else the blocks' text.
    pub text: String,
}

/// The reason why a result cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultFault {
    Malformed,
    /// The server asks for input before it goes on.
    InputRequired,
    /// An unknown kind of result, such as a task.
    OtherKind,
}

#[derive(Deserialize)]
struct OnWire<'a> {
    /// Some servers write an empty list as `null`.
    #[serde(borrow)]
    content: Option<Vec<&'a RawValue>>,
    #[serde(rename = "structuredContent", borrow)]
    structured: Option<&'a RawValue>,
    #[serde(rename = "isError", default)]
    is_error: bool,
    #[serde(rename = "resultType")]
    kind: Option<String>,
}

impl CallResult {
    pub fn read(result: &RawValue) -> Result<Self, ResultFault> {
        let wire: OnWire =
            serde_json::from_str(result.get()).map_err(|_| ResultFault::Malformed)?;
        match wire.kind.as_deref() {
            None | Some("complete") => {}
            Some("input_required") => return Err(ResultFault::InputRequired),
            Some(_) => return Err(ResultFault::OtherKind),
        }
        let structured = wire.structured.map(|it| it.get().to_string());
        let text = match &structured {
            Some(structured) => structured.clone(),
            None => {
                let blocks = wire.content.iter().flatten();
                let blocks = blocks.map(|block| shown(block.get()));
                let blocks: Option<Vec<String>> = blocks.collect();
                blocks.ok_or(ResultFault::Malformed)?.join("\n")
            }
        };
        Ok(Self {
            is_error: wire.is_error,
            structured,
            text,
        })
    }
}

#[derive(Deserialize)]
struct Block {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    data: Option<String>,
    #[serde(rename = "mimeType")]
    media_type: Option<String>,
    uri: Option<String>,
    name: Option<String>,
    resource: Option<Resource>,
}

#[derive(Deserialize)]
struct Resource {
    uri: String,
    #[serde(rename = "mimeType")]
    media_type: Option<String>,
    text: Option<String>,
    blob: Option<String>,
}

/// The text of a content block; `None`: it is not one.
fn shown(block: &str) -> Option<String> {
    let block: Block = serde_json::from_str(block).ok()?;
    Some(match block.kind.as_str() {
        "text" => block.text?,
        "resource_link" => {
            let uri = label(&block.uri?);
            match block.name {
                Some(name) => format!("[{}: {uri}]", label(&name)),
                None => format!("[{uri}]"),
            }
        }
        "resource" => {
            let resource = block.resource?;
            match (resource.text, resource.blob) {
                (Some(text), _) => text,
                (None, Some(blob)) => described(resource.media_type, "resource", &blob),
                (None, None) => format!("[{}]", label(&resource.uri)),
            }
        }
        kind => described(block.media_type, kind, &block.data.unwrap_or_default()),
    })
}

/// Describes binary content, as in `[image/png, 3412 bytes]`.
fn described(media_type: Option<String>, kind: &str, base64: &str) -> String {
    let padding = base64.bytes().rev().take_while(|it| *it == b'=').count();
    let bytes = (base64.len() - padding) * 3 / 4;
    let what = media_type.unwrap_or_else(|| kind.to_string());
    format!("[{}, {bytes} bytes]", label(&what))
}

fn label(text: &str) -> String {
    text.chars().take(MAX_LABEL).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(result: &str, expected: Result<(&str, bool), ResultFault>) {
        let raw = RawValue::from_string(result.to_string()).unwrap();
        let seen = CallResult::read(&raw);
        let seen = seen.as_ref().map(|it| (it.text.as_str(), it.is_error));
        assert_eq!(seen.map_err(|it| *it), expected, "{result}");
    }

    #[test]
    fn structured_content_replaces_the_blocks_and_keeps_its_digits() {
        check(
            r#"{"content":[{"type":"text","text":"1"}],"structuredContent":{"price":1.00}}"#,
            Ok((r#"{"price":1.00}"#, false)),
        );
        check(
            r#"{"resultType":"complete","structuredContent":[1],"isError":true}"#,
            Ok(("[1]", true)),
        );
    }

    #[test]
    fn text_blocks_are_joined_and_other_blocks_described() {
        check(
            r#"{"content":[{"type":"text","text":"two"},{"type":"text","text":"lines"},
                {"type":"image","data":"aGVsbG8=","mimeType":"image/png"},
                {"type":"audio","data":"aGVsbG8h"},
                {"type":"resource_link","uri":"file:///pond","name":"pond"},
                {"type":"resource","resource":{"uri":"a:b","text":"inside"}},
                {"type":"resource","resource":{"uri":"a:b","blob":"aGk=","mimeType":"a/b"}},
                {"type":"hologram"}]}"#,
            Ok((
                "two\nlines\n[image/png, 5 bytes]\n[audio, 6 bytes]\n[pond: file:///pond]\ninside\n[a/b, 2 bytes]\n[hologram, 0 bytes]",
                false,
            )),
        );
        check(r#"{"content":[]}"#, Ok(("", false)));
        check("{}", Ok(("", false)));
        check(r#"{"content":null}"#, Ok(("", false)));
    }

    #[test]
    fn a_value_that_is_not_a_result_is_an_error() {
        check("[]", Err(ResultFault::Malformed));
        check(
            r#"{"content":[{"type":"text"}]}"#,
            Err(ResultFault::Malformed),
        );
        check(r#"{"content":["text"]}"#, Err(ResultFault::Malformed));
        check(
            r#"{"resultType":"input_required","inputRequests":{}}"#,
            Err(ResultFault::InputRequired),
        );
        check(r#"{"resultType":"task"}"#, Err(ResultFault::OtherKind));
    }
}
