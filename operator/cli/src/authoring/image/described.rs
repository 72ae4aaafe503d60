//! Finds the file of an image that describes its service: the one that the label `claw.describe`
//! names, else `/.claw-describe.json`, else `/.claw-tools.json`. Only the first existing one
//! counts: its author has replaced the later ones.

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::layer::ImagePath;
use super::registry::Image;

const LABEL: &str = "claw.describe";
const DESCRIPTOR: &str = "/.claw-describe.json";
const TOOLS: &str = ".claw-tools.json";

pub struct DescriptorFile {
    pub place: ImagePath,
    pub description: Description,
}

/// The description of an image's tools.
pub enum Description {
    /// A `claw.describe` descriptor, which is an object, and the text of its skill if that is a
    /// file.
    Descriptor { descriptor: Value, skill: Skill },
    /// The answer of an MCP server to `tools/list`, stored when the image was built.
    Tools(Vec<Value>),
}

#[derive(Debug, PartialEq, Eq)]
pub enum Skill {
    /// The descriptor names no skill.
    None,
    Text(String),
    /// The path in the descriptor; the image has no such file.
    Missing(String),
}

pub async fn find(image: &mut Image) -> anyhow::Result<DescriptorFile> {
    let (place, bytes) = file(image).await?;
    let description = parse(&place, &bytes).with_context(|| place.to_string())?;
    match description {
        Description::Tools(_) => Ok(DescriptorFile { place, description }),
        Description::Descriptor { descriptor, .. } => {
            let skill = match descriptor["skill"].as_str() {
                None => Skill::None,
                Some(path) => skill(image, &place, path).await?,
            };
            let description = Description::Descriptor { descriptor, skill };
            Ok(DescriptorFile { place, description })
        }
    }
}

async fn file(image: &mut Image) -> anyhow::Result<(ImagePath, Vec<u8>)> {
    if let Some(path) = image.label(LABEL) {
        let shown = path.escape_debug().to_string();
        let place = ImagePath::parse(path).with_context(|| {
            format!(
                "the label {LABEL} names {shown}, which is not the path of a file: correct it, \
                 such as {DESCRIPTOR}"
            )
        })?;
        let bytes = image.file(&place).await?;
        let bytes = bytes.with_context(|| {
            format!(
                "the label {LABEL} names {place}, and the image has no such file: add it, or \
                 correct the label"
            )
        })?;
        return Ok((place, bytes));
    }
    for path in [DESCRIPTOR, TOOLS] {
        let place = ImagePath::parse(path).context("a path of ours")?;
        if let Some(bytes) = image.file(&place).await? {
            return Ok((place, bytes));
        }
    }
    anyhow::bail!(
        "the image has neither a label {LABEL} nor {DESCRIPTOR} nor /{TOOLS}: add one, or write \
         the Surface by hand"
    )
}

/// Parses the file. The name decides the format: a list of tools is an object with `tools`, too.
fn parse(place: &ImagePath, bytes: &[u8]) -> anyhow::Result<Description> {
    let value: Value =
        serde_json::from_slice(bytes).context("is no JSON: correct it in the image")?;
    if !place.to_string().ends_with(TOOLS) {
        ensure!(
            value.is_object(),
            "is no JSON object: correct it in the image"
        );
        return Ok(Description::Descriptor {
            descriptor: value,
            skill: Skill::None,
        });
    }
    // The file may hold the list, the answer with the list, or the message with the answer.
    let answer = value.get("result").unwrap_or(&value);
    ensure!(
        answer.get("nextCursor").is_none_or(Value::is_null),
        "is one page of several: add the whole list to the image"
    );
    let list = answer.get("tools").unwrap_or(answer);
    let tools = list
        .as_array()
        .context("has no list of tools: add the answer to tools/list")?;
    Ok(Description::Tools(tools.clone()))
}

async fn skill(image: &mut Image, descriptor: &ImagePath, path: &str) -> anyhow::Result<Skill> {
    let found = match descriptor.beside(path) {
        Some(place) => image.file(&place).await?,
        None => None,
    };
    match found {
        Some(bytes) => String::from_utf8(bytes)
            .map(Skill::Text)
            .context("the skill is not text in UTF-8: correct it in the image"),
        None => Ok(Skill::Missing(path.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools(path: &str, text: &str) -> Result<Option<usize>, String> {
        match parse(&ImagePath::parse(path).unwrap(), text.as_bytes()) {
            Ok(Description::Tools(tools)) => Ok(Some(tools.len())),
            Ok(Description::Descriptor { .. }) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn a_list_of_tools_is_recognized_by_the_file_name() {
        let list = r#"[{"name": "swim"}]"#;
        let answer = format!(r#"{{"tools": {list}}}"#);
        let message = format!(r#"{{"jsonrpc": "2.0", "id": 1, "result": {answer}}}"#);
        for text in [list, &answer, &message] {
            assert_eq!(tools("/.claw-tools.json", text), Ok(Some(1)));
        }
        assert_eq!(tools("/.claw-describe.json", &answer), Ok(None));
        assert_eq!(tools("/opt/fish.json", &answer), Ok(None));
    }

    #[test]
    fn other_files_are_reported() {
        let page = r#"{"tools": [], "nextCursor": "2"}"#;
        assert_eq!(
            tools("/.claw-tools.json", page),
            Err("is one page of several: add the whole list to the image".into())
        );
        assert_eq!(
            tools("/.claw-tools.json", "{}"),
            Err("has no list of tools: add the answer to tools/list".into())
        );
        assert_eq!(
            tools("/.claw-describe.json", "[]"),
            Err("is no JSON object: correct it in the image".into())
        );
        assert_eq!(
            tools("/.claw-describe.json", "{"),
            Err("is no JSON: correct it in the image".into())
        );
    }
}
