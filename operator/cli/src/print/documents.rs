//! Prints objects as YAML for a reviewer, with comments.

use serde_json::Value;
use toolcrib_compile::yaml;

#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// Comment lines without `#`.
    pub comments: Vec<String>,
    pub object: Value,
}

impl Document {
    pub fn new(object: Value) -> Self {
        Self {
            comments: Vec::new(),
            object,
        }
    }

    pub fn with_comment(mut self, comment: impl Into<String>) -> Self {
        self.comments.push(comment.into());
        self
    }
}

/// Joins the documents of one file.
pub fn documents(documents: &[Document]) -> Result<String, serde_yaml::Error> {
    let mut text = String::new();
    for (index, document) in documents.iter().enumerate() {
        if index > 0 {
            text += "---\n";
        }
        for comment in &document.comments {
            text += &commented(comment);
        }
        text += &yaml::to_string(&document.object)?;
    }
    Ok(text)
}

/// Formats a comment in lines of at most 90 columns. A text from the pod file must not end its
/// comment, so unprintable characters become spaces.
pub fn commented(text: &str) -> String {
    let mut lines = String::new();
    let mut line = String::from("#");
    let clean: String = text
        .chars()
        .map(|c| if is_unprintable(c) { ' ' } else { c })
        .collect();
    for word in clean.split(' ').filter(|word| !word.is_empty()) {
        if line.chars().count() + 1 + word.chars().count() > 90 && line != "#" {
            lines += &line;
            lines.push('\n');
            line = String::from("#");
        }
        line.push(' ');
        line += word;
    }
    lines += &line;
    lines.push('\n');
    lines
}

/// Whether a reviewer would not see this character, or YAML ends a line there.
pub fn is_unprintable(c: char) -> bool {
    c.is_control() || toolcrib_bounds::is_hidden(c) || matches!(c, '\u{2028}' | '\u{2029}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_leave_its_yaml_comment() {
        assert_eq!(
            commented("otter\nkind: Secret\u{2028}x"),
            "# otter kind: Secret x\n"
        );
        assert!(commented(&"word ".repeat(40)).lines().count() > 1);
    }
}
