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

/// An AdmissionReview of each object.
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

/// An object with these members of its spec.
fn object(kind: &str, spec: &str) -> String {
    let version = match kind {
        "Pod" => "v1",
        _ => "toolcrib.dev/v1alpha1",
    };
    format!(
        r#"{{"apiVersion":"{version}","kind":"{kind}","metadata":{{"name":"otter","namespace":"pond","labels":{{"toolcrib.dev/agent":"otter"}}}},"spec":{{{spec}}}}}"#
    )
}

/// Objects with a JSON value in a field of the spec that no kind defines.
fn unknown_members(kind: &'static str, spec: &'static str) -> Vec<Shape> {
    let unknown = |value: Shape| {
        shape(value.name, move |bytes| {
            object(kind, &format!(r#"{spec},"x":{}"#, (value.make)(bytes)))
        })
    };
    json_values().into_iter().map(unknown).collect()
}

fn pods() -> Vec<Shape> {
    let pod = |spec: fn(usize) -> String| move |bytes| object("Pod", &spec(bytes));
    let mut shapes = unknown_members("Pod", r#""containers":[{"name":"c"}]"#);
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
        shape(
            "a long name",
            pod(|bytes| {
                let name = r"\u0007".repeat(bytes / 6);
                format!(r#""containers":[{{"name":"{name}"}}]"#)
            }),
        ),
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
    let surface = |descriptor: String| {
        let descriptor = format!(r#""descriptor":{{"version":2,{descriptor}}}"#);
        object(
            "Surface",
            &format!(r#""url":"https://reef.test",{descriptor}"#),
        )
    };
    let tools = move |piece: &'static str| {
        move |bytes| surface(format!(r#""tools":[{}]"#, list(bytes, piece, ",")))
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
        shape(
            "hidden characters in a member of a long name",
            move |bytes| {
                let texts = list(bytes / 2, r#""\u202e#""#, ",");
                let name = "x".repeat(bytes / 2);
                surface(format!(r#""tools":[],"{name}":[{texts}]"#))
            },
        ),
        shape("a long address", |bytes| {
            let path = r"\u0007".repeat(bytes / 6);
            object("Surface", &format!(r#""url":"http://reef.test/{path}""#))
        }),
    ]
}

fn grants() -> Vec<Shape> {
    let grant = |spec: fn(usize) -> String| move |bytes| object("ToolGrant", &spec(bytes));
    let mut shapes = vec![
        shape(
            "agents of a grant",
            grant(|bytes| {
                let agents = list(bytes, r#""a#""#, ",");
                let rule = r#"{"surface":{"name":"s"},"allow":["t"]}"#;
                format!(r#""agents":[{agents}],"tools":[{rule}]"#)
            }),
        ),
        shape(
            "surfaces of a grant",
            grant(|bytes| {
                let rules = list(bytes, r#"{"surface":{"name":"s#"},"allow":["t#"]}"#, ",");
                format!(r#""agents":["a"],"tools":[{rules}]"#)
            }),
        ),
    ];
    shapes.extend(unknown_members("ToolGrant", r#""agents":[]"#));
    shapes
}
