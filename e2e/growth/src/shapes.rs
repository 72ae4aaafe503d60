//! Hostile inputs of about any number of bytes.

/// A kind of input; `make` returns an input of about a given number of bytes.
pub struct Shape {
    pub name: &'static str,
    pub make: Box<dyn Fn(usize) -> String>,
}

pub fn shape(name: &'static str, make: impl Fn(usize) -> String + 'static) -> Shape {
    Shape {
        name,
        make: Box::new(make),
    }
}

/// Repeats a piece.
pub fn repeated(name: &'static str, piece: &'static str) -> Shape {
    shape(name, move |bytes| piece.repeat(bytes / piece.len()))
}

/// Repeats a piece, with its number in place of `#`.
pub fn numbered(name: &'static str, piece: &'static str, between: &'static str) -> Shape {
    shape(name, move |bytes| list(bytes, piece, between))
}

/// Numbered pieces of about `bytes` bytes. Numbers have five digits, so that all pieces have the
/// same length.
pub fn list(bytes: usize, piece: &str, between: &str) -> String {
    let size = piece.replace('#', "10000").len() + between.len();
    let pieces: Vec<String> = (0..(bytes / size).max(1))
        .map(|at| piece.replace('#', &format!("{}", 10_000 + at)))
        .collect();
    pieces.join(between)
}

/// Returns the shapes with a text before and after each input.
pub fn within(shapes: Vec<Shape>, before: &'static str, after: &'static str) -> Vec<Shape> {
    shapes
        .into_iter()
        .map(|inner| {
            shape(inner.name, move |bytes| {
                format!("{before}{}{after}", (inner.make)(bytes))
            })
        })
        .collect()
}

/// Values in JSON, all of them valid.
pub fn json_values() -> Vec<Shape> {
    vec![
        shape("many keys", |bytes| {
            format!("{{{}}}", list(bytes, r#""key#":#"#, ","))
        }),
        shape("many keys, last ones first", |bytes| {
            let keys = list(bytes, r#""key#":#"#, ",");
            let mut keys: Vec<&str> = keys.split(',').collect();
            keys.reverse();
            format!("{{{}}}", keys.join(","))
        }),
        shape("one key again and again", |bytes| {
            format!("{{{}}}", list(bytes, r#""key":#"#, ","))
        }),
        shape("small objects", |bytes| {
            format!("[{}]", list(bytes, r#"{"a":#}"#, ","))
        }),
        shape("nested to the bound", |bytes| {
            let nested = format!("{}{}", "[".repeat(40), "]".repeat(40));
            format!("[{}]", list(bytes, &nested, ","))
        }),
        shape("backslashes", |bytes| {
            format!("\"{}\"", "\\\\".repeat(bytes / 2))
        }),
        shape("escaped quotes", |bytes| {
            format!("\"{}\"", "\\\"".repeat(bytes / 2))
        }),
        shape("escaped escapes", |bytes| {
            format!("\"{}\"", r"\\\\\\u005c".repeat(bytes / 11))
        }),
        shape("code units", |bytes| {
            format!("\"{}\"", r"\ud83d\udc1f".repeat(bytes / 12))
        }),
        shape("a long key", |bytes| {
            format!("{{\"{}\":1}}", "\\n".repeat(bytes / 2))
        }),
        shape("numbers", |bytes| {
            format!("[{}]", list(bytes, "1.#e-2", ","))
        }),
        shape("space", |bytes| format!("[{}]", " \n".repeat(bytes / 2))),
    ]
}

/// Texts that begin like JSON and are not JSON.
pub fn broken_json() -> Vec<Shape> {
    vec![
        repeated("open arrays", "["),
        repeated("open objects", "{\"a\":"),
        repeated("open strings", "\""),
        shape("a string without end", |bytes| {
            format!("\"{}", "\\\\".repeat(bytes / 2))
        }),
        shape("a number without end", |bytes| "1".repeat(bytes)),
        repeated("commas", ","),
        repeated("Unicode line separators", "\u{2028}\u{feff}"),
    ]
}

/// JSON texts, valid or not.
pub fn json_texts() -> Vec<Shape> {
    let mut shapes = json_values();
    shapes.extend(broken_json());
    shapes
}
