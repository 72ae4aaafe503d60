//! Objects, files and CA bundles as compile reads them.

use std::hint::black_box;

use toolcrib_bounds::ca;
use toolcrib_compile::normalize::normalize;
use toolcrib_compile::{ObjectRef, Settings, check_surface, load, yaml};

use super::{Entry, KIB, entry};
use crate::shapes::{Shape, json_texts, list, numbered, repeated, shape, within};

pub(super) fn entries() -> Vec<Entry> {
    let tools = |piece: &'static str| {
        move |bytes| {
            format!(
                r#"{{"apiVersion":"toolcrib.dev/v1alpha1","kind":"Surface","metadata":{{"name":"reef","namespace":"pond"}},"spec":{{"url":"https://reef.test","descriptor":{{"version":2,"tools":[{}]}}}}}}"#,
                list(bytes, piece, ",")
            )
        }
    };
    let surfaces = vec![
        shape(
            "tools",
            tools(r#"{"name":"t#","inputSchema":{},"http":{"method":"GET","path":"/a"}}"#),
        ),
        shape(
            "tools of one name",
            tools(r#"{"name":"t","inputSchema":{},"http":{"method":"GET","path":"/#"}}"#),
        ),
        shape(
            "templates",
            tools(
                r#"{"name":"t#","inputSchema":{"properties":{"a":{}}},"http":{"method":"GET","path":"/{a}/{a}/{a}/{a}/{a}/{a}/{a}/{a}"}}"#,
            ),
        ),
        shape("malformed tools", tools(r#"{"name":#}"#)),
        shape(
            "refused patterns",
            tools(
                r#"{"name":"t#","inputSchema":{"patternProperties":{"^(?!x)":{}}},"http":{"method":"GET","path":"/a"}}"#,
            ),
        ),
    ];
    vec![
        entry(
            "normalize",
            "an object, 1.5 MiB",
            KIB,
            json_texts(),
            |text| {
                drop(black_box(normalize(text)));
            },
        ),
        entry("surface", "an object, 1.5 MiB", KIB / 2, surfaces, |text| {
            let loaded = load(
                [("surface.json".to_owned(), text.to_owned())],
                Settings::default(),
            );
            drop(black_box(check_surface(
                &loaded.inputs,
                &ObjectRef::new("pond", "reef"),
            )));
        }),
        entry(
            "YAML",
            "a file of the user",
            KIB / 2,
            yaml_shapes(),
            |text| {
                drop(black_box(yaml::documents(text)));
            },
        ),
        entry(
            "CA bundle",
            "an object, 1.5 MiB; a file, 4 MiB",
            2 * KIB,
            bundles(),
            |text| {
                drop(black_box(ca::certificates(text)));
            },
        ),
    ]
}

const CERTIFICATE: &str = include_str!("../../../../crds/bounds/tests/pond.pem");
const BEGIN: &str = "-----BEGIN CERTIFICATE-----\n";
const END: &str = "-----END CERTIFICATE-----\n";

fn bundles() -> Vec<Shape> {
    // Inputs that have a certificate beside the hostile text are read to their end.
    let mut shapes = within(
        vec![
            repeated(
                "other sections",
                "-----BEGIN A-----\nAAAA\n-----END A-----\n",
            ),
            repeated("empty lines", "\n"),
            repeated("lines of text", "text\n"),
            repeated("dashes", "-----\n"),
            shape("a line without end", |bytes| "x".repeat(bytes) + "\n"),
            shape("a long label", |bytes| {
                format!("-----BEGIN {}-----\n", "A".repeat(bytes))
            }),
            repeated("beginnings of sections", "-----BEGIN A-----\n"),
            repeated("ends of sections", "-----END A-----\n"),
        ],
        "",
        CERTIFICATE,
    );
    shapes.extend(within(
        vec![
            repeated("lines of base64", "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFB\n"),
            shape("a line of base64", |bytes| "QUFB".repeat(bytes / 4) + "\n"),
            shape("no base64", |bytes| "!".repeat(bytes) + "\n"),
        ],
        BEGIN,
        END,
    ));
    shapes.extend([
        repeated("certificates", CERTIFICATE),
        shape("text between certificates", |bytes| {
            let text = "text ".repeat(20) + "\n";
            format!("{text}{CERTIFICATE}").repeat(bytes / CERTIFICATE.len())
        }),
        repeated(
            "empty certificates",
            "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n",
        ),
        repeated("beginnings of certificates", BEGIN),
        shape("a certificate without end", |bytes| {
            format!("{BEGIN}{}", "QUFB\n".repeat(bytes / 5))
        }),
    ]);
    shapes
}

pub(super) fn yaml_shapes() -> Vec<Shape> {
    vec![
        numbered("keys", "key#: #", "\n"),
        numbered("items", "- #", "\n"),
        numbered("documents", "a: #", "\n---\n"),
        repeated("open brackets", "["),
        repeated("open braces", "{a: "),
        repeated("dashes", "- "),
        repeated("questions", "? "),
        numbered("unknown aliases", "- *a", "\n"),
        shape("aliases", |bytes| {
            format!("a: &a [1]\nb:\n{}", "- *a\n".repeat(bytes / 5))
        }),
        shape("a long text", |bytes| {
            format!("a: \"{}\"", "\\\\".repeat(bytes / 2))
        }),
        shape("a folded text", |bytes| {
            format!("a: >\n{}", "  a\n\n".repeat(bytes / 5))
        }),
        shape("comments", |bytes| "#\n".repeat(bytes / 2)),
    ]
}
