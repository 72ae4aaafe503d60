//! The bodies that the API server sends to the webhook.

use toolcrib_operator::foreign::{Admission, validate};

use super::{Entry, KIB, entry, prepared};
use crate::shapes::{Shape, broken_json, json_values, list, shape};

pub fn entries() -> Vec<Entry> {
    vec![
        prepared(
            "review of a pod",
            "3 MiB",
            KIB,
            reviews(pods(), r#""kind":{"kind":"Pod"},"operation":"CREATE""#),
            || {
                let admission = Admission::default();
                Box::new(move |text| drop(admission.inject(text.as_bytes())))
            },
        ),
        entry("review of an object", "3 MiB", 4 * KIB, objects(), |text| {
            drop(validate(text.as_bytes()))
        }),
    ]
}

fn objects() -> Vec<Shape> {
    let mut shapes = reviews(
        surfaces(),
        r#""kind":{"kind":"Surface"},"operation":"CREATE""#,
    );
    // Both versions have the same findings, one for each tool.
    for (surface, name) in surfaces().into_iter().zip(UPDATES) {
        shapes.push(shape(name, move |bytes| {
            let before = (surface.make)(bytes / 2);
            let after = before.replacen("reef.test", "reed.test", 1);
            format!(
                r#"{{"request":{{"uid":"u-7","kind":{{"kind":"Surface"}},"operation":"UPDATE","namespace":"pond","name":"otter","oldObject":{before},"object":{after}}}}}"#
            )
        }));
    }
    shapes.extend(reviews(
        grants(),
        r#""kind":{"kind":"ToolGrant"},"operation":"CREATE""#,
    ));
    shapes.extend(broken_json());
    shapes
}

/// A review of each object.
fn reviews(objects: Vec<Shape>, about: &'static str) -> Vec<Shape> {
    let review = |object: Shape| {
        shape(object.name, move |bytes| {
            format!(
                r#"{{"kind":"AdmissionReview","request":{{"uid":"u-7","namespace":"pond","name":"otter",{about},"object":{}}}}}"#,
                (object.make)(bytes)
            )
        })
    };
    objects.into_iter().map(review).collect()
}

fn pods() -> Vec<Shape> {
    let pod = |spec: fn(usize) -> String| {
        move |bytes| {
            format!(
                r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"otter","labels":{{"toolcrib.dev/agent":"otter"}}}},"spec":{{{}}}}}"#,
                spec(bytes)
            )
        }
    };
    let mut shapes: Vec<Shape> = json_values()
        .into_iter()
        .map(|value| {
            shape(value.name, move |bytes| {
                format!(
                    r#"{{"metadata":{{"labels":{{"toolcrib.dev/agent":"otter"}}}},"spec":{{"containers":[{{"name":"c"}}],"x":{}}}}}"#,
                    (value.make)(bytes)
                )
            })
        })
        .collect();
    shapes.extend([
        shape(
            "containers",
            pod(|bytes| {
                let containers = list(bytes, r#"{"name":"c#","image":"i"}"#, ",");
                format!(r#""containers":[{containers}]"#)
            }),
        ),
        shape(
            "init containers",
            pod(|bytes| {
                let containers = list(bytes, r#"{"name":"c#","image":"i"}"#, ",");
                format!(r#""containers":[{{"name":"c"}}],"initContainers":[{containers}]"#)
            }),
        ),
        shape(
            "variables",
            pod(|bytes| {
                let variables = list(bytes, r#"{"name":"V#","value":"$(V#)"}"#, ",");
                format!(r#""containers":[{{"name":"c","env":[{variables}]}}]"#)
            }),
        ),
        shape(
            "one variable again and again",
            pod(|bytes| {
                let variables = list(bytes, r#"{"name":"NO_PROXY","value":"h#"}"#, ",");
                format!(r#""containers":[{{"name":"c","env":[{variables}]}}]"#)
            }),
        ),
        shape(
            "hosts of one variable",
            pod(|bytes| {
                let hosts = list(bytes, "h#", ",");
                format!(
                    r#""containers":[{{"name":"c","env":[{{"name":"NO_PROXY","value":"{hosts}"}}]}}]"#
                )
            }),
        ),
        shape(
            "volumes and mounts",
            pod(|bytes| {
                let volumes = list(bytes / 2, r#"{"name":"v#","emptyDir":{}}"#, ",");
                let mounts = list(bytes / 2, r#"{"name":"v#","mountPath":"/v#"}"#, ",");
                format!(
                    r#""containers":[{{"name":"c","volumeMounts":[{mounts}]}}],"volumes":[{volumes}]"#
                )
            }),
        ),
        shape(
            "capabilities",
            pod(|bytes| {
                let capabilities = list(bytes, r#""C#""#, ",");
                format!(
                    r#""containers":[{{"name":"c","securityContext":{{"capabilities":{{"drop":[{capabilities}]}}}}}}]"#
                )
            }),
        ),
        shape("a long name", |bytes| {
            format!(
                r#"{{"metadata":{{"labels":{{"toolcrib.dev/agent":"otter"}}}},"spec":{{"containers":[{{"name":"{}"}}]}}}}"#,
                r"\u0007".repeat(bytes / 6)
            )
        }),
    ]);
    shapes
}

/// The names of the inputs in which each of [`surfaces`] is changed.
const UPDATES: [&str; 6] = [
    "changed tools",
    "changed tools of one name",
    "changed remote references",
    "changed malformed tools",
    "changed characters in a member of a long name",
    "a changed long address",
];

fn surfaces() -> Vec<Shape> {
    let tools = |piece: &'static str| {
        move |bytes| {
            format!(
                r#"{{"apiVersion":"toolcrib.dev/v1alpha1","kind":"Surface","metadata":{{"name":"otter","namespace":"pond"}},"spec":{{"url":"https://reef.test","descriptor":{{"version":2,"tools":[{}]}}}}}}"#,
                list(bytes, piece, ",")
            )
        }
    };
    vec![
        shape(
            "tools",
            tools(r#"{"name":"t#","inputSchema":{},"http":{"method":"GET","path":"/a"}}"#),
        ),
        shape(
            "tools of one name",
            tools(r#"{"name":"t","inputSchema":{},"http":{"method":"GET","path":"/#"}}"#),
        ),
        shape(
            "remote references",
            tools(
                r#"{"name":"t#","inputSchema":{"$ref":"http://a.test"},"http":{"method":"GET","path":"/a"}}"#,
            ),
        ),
        shape("malformed tools", tools(r#"{"name":#}"#)),
        shape("hidden characters in a member of a long name", |bytes| {
            let texts = list(bytes / 2, r#""\u202e#""#, ",");
            let name = "x".repeat(bytes / 2);
            format!(
                r#"{{"apiVersion":"toolcrib.dev/v1alpha1","kind":"Surface","metadata":{{"name":"otter","namespace":"pond"}},"spec":{{"url":"https://reef.test","descriptor":{{"version":2,"tools":[],"{name}":[{texts}]}}}}}}"#
            )
        }),
        shape("a long address", |bytes| {
            format!(
                r#"{{"metadata":{{"name":"otter"}},"spec":{{"url":"http://reef.test/{}"}}}}"#,
                r"\u0007".repeat(bytes / 6)
            )
        }),
    ]
}

fn grants() -> Vec<Shape> {
    let grant = |spec: fn(usize) -> String| {
        move |bytes| {
            format!(
                r#"{{"apiVersion":"toolcrib.dev/v1alpha1","kind":"ToolGrant","metadata":{{"name":"otter","namespace":"pond"}},"spec":{{{}}}}}"#,
                spec(bytes)
            )
        }
    };
    let mut shapes = vec![
        shape(
            "agents of a grant",
            grant(|bytes| {
                let agents = list(bytes, r#""a#""#, ",");
                format!(r#""agents":[{agents}],"surfaces":[]"#)
            }),
        ),
        shape(
            "surfaces of a grant",
            grant(|bytes| {
                let surfaces = list(bytes, r#"{"name":"s#","tools":["t#"]}"#, ",");
                format!(r#""agents":["a"],"surfaces":[{surfaces}]"#)
            }),
        ),
    ];
    shapes.extend(json_values().into_iter().map(|value| {
        shape(value.name, move |bytes| {
            format!(
                r#"{{"metadata":{{"name":"otter"}},"spec":{{"agents":[],"x":{}}}}}"#,
                (value.make)(bytes)
            )
        })
    }));
    shapes
}
