//! Hostile arguments, for the tests of this crate and of the mediator's sockets.

/// Values that have another meaning in a path, in every encoding that some server decodes to the
/// same.
pub fn path_values() -> Vec<String> {
    let bare = [
        "..",
        ".",
        "../x",
        "a/..",
        "a/b",
        "/",
        "a\\..",
        "\\",
        "x?admin=1",
        "?",
        "x#f",
        "#",
        "a%b",
        "%",
        "a\r\nHost: b",
        "\r\n\r\n",
        "\0",
        "a\tb",
        "\u{7f}",
        "\u{85}",
        "",
        "..;/x",
        "...",
        "/etc/passwd",
        "//host",
        "http://host/",
    ];
    let mut corpus: Vec<String> = bare.iter().map(ToString::to_string).collect();
    for text in bare.iter().filter(|text| !text.is_empty()) {
        let hex = |upper: bool| -> String {
            text.bytes()
                .map(|b| {
                    if upper {
                        format!("%{b:02X}")
                    } else {
                        format!("%{b:02x}")
                    }
                })
                .collect()
        };
        for once in [hex(true), hex(false)] {
            let twice = once.replace('%', "%25");
            corpus.push(twice.replace('%', "%25"));
            corpus.extend([once, twice]);
        }
        let wide: String = text
            .chars()
            .map(|c| match c {
                '!'..='~' => char::from_u32(c as u32 + 0xfee0).unwrap(),
                other => other,
            })
            .collect();
        corpus.extend([wide, format!("{text}\u{200b}"), format!("\u{202e}{text}")]);
    }
    corpus.extend(
        [
            "%c0%ae%c0%ae%c0%af",
            "%u002e%u002e",
            "\u{2215}",
            "a\u{2044}b",
            "\u{ff0e}\u{ff0e}",
            "\u{2024}\u{2024}",
            "\u{fe52}.",
            "\u{feff}..",
            "%e2%80%a8",
            "\u{2028}",
            "a\u{fe68}b",
            "\u{ff05}2e",
        ]
        .map(String::from),
    );
    corpus
}
