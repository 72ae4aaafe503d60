//! The place of a grant in a git checkout: its line, and the commit and author of that line.

use std::path::Path;
use std::process::Command;

use serde::Serialize;
use toolcrib_bounds::cut;
use toolcrib_compile::{LoadResult, Subject};

use super::grant::GrantFacts;
use super::note;

/// Where the grant is written.
#[derive(Debug, Serialize)]
pub(super) struct Place {
    pub path: String,
    /// The first line of the grant that names the tool, or the grant's first line.
    pub line: usize,
    /// Missing if git does not know the line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<Commit>,
}

/// The commit that wrote a line last.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Commit {
    pub id: String,
    pub author: String,
    pub time: String,
    pub subject: String,
}

/// Longest text of a commit that is shown, in bytes.
const MAX_TEXT: usize = 200;
/// Digits of a commit's id that are shown.
const SHOWN_ID: usize = 12;
/// The id that git gives to a line without a commit.
const NOT_COMMITTED: &str = "0000000";

/// `None`: the grant is not in the files.
pub(super) fn place(files: &LoadResult, grant: &GrantFacts, tool: &str) -> Option<Place> {
    let subject = Subject::new(grant.kind?, &grant.key);
    let Some(origin) = files.origins.get(&subject) else {
        note(&format!("{} is not in the files of --files", grant.name()));
        return None;
    };
    let line = line_of(&origin.path, origin.line, tool);
    let commit = match blame(Path::new(&origin.path), line) {
        Ok(commit) => commit,
        Err(why) => {
            note(&format!(
                "git does not say who wrote {}: {why}",
                origin.path
            ));
            None
        }
    };
    Some(Place {
        path: origin.path.clone(),
        line,
        commit,
    })
}

/// The first line of the document that names the tool, or the document's first line.
fn line_of(path: &str, first: usize, tool: &str) -> usize {
    let bare = tool.split_once('.').map_or(tool, |(_, bare)| bare);
    let Ok(text) = std::fs::read_to_string(path) else {
        return first;
    };
    let document = text.lines().enumerate().skip(first.saturating_sub(1));
    let mut document = document.take_while(|(_, line)| !line.starts_with("---"));
    let is_word = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    let names = |line: &str| line.split(|c| !is_word(c)).any(|word| word == bare);
    let found = document.find(|(_, line)| names(line));
    found.map_or(first, |(index, _)| index + 1)
}

/// Asks git for the commit of a line. `None`: the line is not committed.
fn blame(path: &Path, line: usize) -> Result<Option<Commit>, String> {
    let name = path.file_name().ok_or("it has no name")?;
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    let output = Command::new("git")
        .arg("-C")
        .arg(folder.unwrap_or(Path::new(".")))
        // A checkout's own settings could name programs to run.
        .args([
            "-c",
            "core.fsmonitor=false",
            "blame",
            "--porcelain",
            "--no-textconv",
        ])
        .arg(format!("-L{line},{line}"))
        .arg("--")
        .arg(name)
        .env("GIT_OPTIONAL_LOCKS", "0")
        .output()
        .map_err(|error| format!("git does not start: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().next().unwrap_or("it fails without a message");
        return Err(cut(said, MAX_TEXT).into_owned());
    }
    Ok(commit(&String::from_utf8_lossy(&output.stdout)))
}

/// Reads the commit from the output of `git blame --porcelain`.
fn commit(porcelain: &str) -> Option<Commit> {
    let id = porcelain.split_whitespace().next()?;
    if id.starts_with(NOT_COMMITTED) {
        return None;
    }
    let field = |name: &str| {
        let value = porcelain.lines().find_map(|line| line.strip_prefix(name))?;
        Some(cut(value.trim(), MAX_TEXT).into_owned())
    };
    let seconds = field("author-time ")?.parse().ok()?;
    Some(Commit {
        id: id.get(..SHOWN_ID).unwrap_or(id).to_owned(),
        author: format!(
            "{} {}",
            field("author ")?,
            field("author-mail ").unwrap_or_default()
        )
        .trim_end()
        .to_owned(),
        time: jiff::Timestamp::from_second(seconds).ok()?.to_string(),
        subject: field("summary ").unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_a_grant_names_the_tool_as_a_word() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("grants.yaml");
        let text = "kind: Other\nallow: [sell]\n---\nkind: ToolGrant\nallow:\n- sell_all\n- sell\n---\nallow: [buy]\n";
        std::fs::write(&path, text).unwrap();
        let path = path.to_str().unwrap();
        assert_eq!(line_of(path, 4, "desk.sell"), 7);
        assert_eq!(line_of(path, 4, "desk.buy"), 4);
    }

    #[test]
    fn git_names_the_commit_of_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let git = |words: &[&str]| {
            let done = Command::new("git")
                .arg("-C")
                .arg(folder.path())
                .args(["-c", "user.name=Ann", "-c", "user.email=ann@pond.test"])
                .args(words)
                .output()
                .unwrap();
            assert!(done.status.success(), "{words:?}: {done:?}");
        };
        let path = folder.path().join("grants.yaml");
        git(&["init", "--quiet"]);
        std::fs::write(&path, "allow:\n- look\n").unwrap();
        git(&["add", "."]);
        git(&["commit", "--quiet", "--message", "Let otters look"]);
        std::fs::write(&path, "allow:\n- look\n- dive\n").unwrap();
        let commit = blame(&path, 2).unwrap().unwrap();
        assert_eq!(commit.author, "Ann <ann@pond.test>");
        assert_eq!(commit.subject, "Let otters look");
        assert_eq!(blame(&path, 3), Ok(None));
        assert!(blame(&path, 4).is_err());
    }

    #[test]
    fn a_line_without_a_commit_has_none() {
        let porcelain = "0000000000000000000000000000000000000000 1 1 1\nauthor Not Committed Yet\nauthor-time 1\n";
        assert_eq!(commit(porcelain), None);
        let porcelain = "1234567890abcdef1234567890abcdef12345678 1 1 1\nauthor Ann\nauthor-mail <ann@pond.test>\nauthor-time 0\nsummary Let otters look\n\tallow: [look]\n";
        let commit = commit(porcelain).unwrap();
        assert_eq!(commit.id, "1234567890ab");
        assert_eq!(commit.author, "Ann <ann@pond.test>");
        assert_eq!(commit.time, "1970-01-01T00:00:00Z");
    }
}
