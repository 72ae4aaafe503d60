//! The path of a value in JSON, formatted only when a message needs it.

use std::fmt;

/// A path such as `spec.tools[0].name`, as a chain of borrowed steps. Its text is as long as all
/// names on it, so formatting the path of every value would take quadratic time.
#[derive(Clone, Copy, Debug)]
pub enum FieldPath<'a> {
    Root,
    Member(&'a FieldPath<'a>, &'a str),
    Item(&'a FieldPath<'a>, usize),
}

impl fmt::Display for FieldPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Member(Self::Root, name) => f.write_str(name),
            Self::Member(parent, name) => write!(f, "{parent}.{name}"),
            Self::Item(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_written_as_kubernetes_writes_it() {
        let spec = FieldPath::Member(&FieldPath::Root, "spec");
        let tools = FieldPath::Member(&spec, "tools");
        let tool = FieldPath::Item(&tools, 2);
        let name = FieldPath::Member(&tool, "name");
        assert_eq!(name.to_string(), "spec.tools[2].name");
        assert_eq!(FieldPath::Root.to_string(), "");
        assert_eq!(FieldPath::Item(&FieldPath::Root, 0).to_string(), "[0]");
    }
}
