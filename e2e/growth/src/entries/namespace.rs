//! The work of the compiler on objects that refer to each other, with many names on both sides.

use std::hint::black_box;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use toolcrib_compile::{
    Inputs, ObjectRef, Settings, check_defaults, check_grant, check_provider, check_surface,
    compile, plan_agent,
};

use super::{Entry, KIB, entry};
use crate::shapes::{Shape, list, shape};

pub fn entries() -> Vec<Entry> {
    vec![
        entry(
            "grant against a surface",
            "64 rules of 256 names, an object of 1.5 MiB",
            4 * KIB,
            grants(),
            |text| each(&inputs(text)),
        ),
        entry(
            "tiers",
            "256 tiers, an object of 1.5 MiB",
            4 * KIB,
            tiers(),
            |text| each(&inputs(text)),
        ),
        entry(
            "compile of a namespace",
            "48 MiB of objects",
            4 * KIB,
            namespaces(),
            |text| each(&inputs(text)),
        ),
        entry(
            "plan of an agent",
            "a compilation",
            4 * KIB,
            plans(),
            |text| {
                let before = inputs(text);
                let after = inputs(&text.replace(r#""name":"get_"#, r#""name":"put_"#));
                black_box(plan_agent(&before, &after, &otter()));
            },
        ),
    ]
}

fn inputs(text: &str) -> Inputs {
    #[derive(Deserialize)]
    struct OnlyKind<'a> {
        kind: &'a str,
    }
    fn read<T: DeserializeOwned>(object: &RawValue) -> Arc<T> {
        Arc::new(serde_json::from_str(object.get()).expect("an object of this kind"))
    }
    let mut inputs = Inputs::offline(Settings::default());
    let objects: Vec<&RawValue> = serde_json::from_str(text).expect("a list");
    for object in objects {
        let OnlyKind { kind } = serde_json::from_str(object.get()).expect("an object");
        match kind {
            "Agent" => inputs.set_agent(read(object)),
            "Surface" => inputs.set_surface(read(object)),
            "ToolGrant" => inputs.set_grant(read(object)),
            "ToolDefaults" => inputs.set_defaults(read(object)),
            "ModelProvider" => inputs.set_provider(read(object)),
            _ => panic!("{kind} is not needed"),
        }
    }
    inputs
}

fn otter() -> ObjectRef {
    ObjectRef::new("pond", "otter")
}

/// Compiles one agent, and checks one object of each kind.
fn each(inputs: &Inputs) {
    let key = |name: &str| ObjectRef::new("pond", name);
    black_box(compile(inputs, &otter()));
    black_box(check_surface(inputs, &key("reef")));
    black_box(check_grant(inputs, &key("gives")));
    black_box(check_defaults(inputs, &key("default")));
    black_box(check_provider(inputs, &key("house")));
}

/// Objects in one text.
fn objects(objects: &[String]) -> String {
    format!("[{}]", objects.join(","))
}

fn object(kind: &str, name: &str, spec: &str) -> String {
    format!(
        r#"{{"apiVersion":"toolcrib.dev/v1alpha1","kind":"{kind}","metadata":{{"name":"{name}","namespace":"pond"}},"spec":{{{spec}}}}}"#
    )
}

fn agent() -> String {
    object("Agent", "otter", r#""surfaces":[{"name":"reef"}]"#)
}

/// A Surface of about this size, and its other members.
fn reef(bytes: usize, more: &str) -> String {
    const TOOL: &str =
        r#"{"name":"get_number_#_of_reef","inputSchema":{},"http":{"method":"GET","path":"/a"}}"#;
    let tools = list(bytes, TOOL, ",");
    object(
        "Surface",
        "reef",
        &format!(
            r#""url":"https://reef.test","descriptor":{{"version":2,"tools":[{tools}]}}{more}"#
        ),
    )
}

/// A grant of about this size, whose rules name 32 tools each.
fn gives(bytes: usize, tool: &str) -> String {
    let names = list(bytes, &format!(r#""{tool}""#), ",");
    let names: Vec<&str> = names.split(',').collect();
    let rules: Vec<String> = names
        .chunks(32)
        .map(|names| {
            format!(
                r#"{{"surface":{{"name":"reef"}},"allow":[{}]}}"#,
                names.join(",")
            )
        })
        .collect();
    let rules = rules.join(",");
    object(
        "ToolGrant",
        "gives",
        &format!(r#""agents":["otter"],"tools":[{rules}]"#),
    )
}

fn grants() -> Vec<Shape> {
    let against = |tool: &'static str| {
        move |bytes| objects(&[agent(), reef(bytes / 2, ""), gives(bytes / 2, tool)])
    };
    vec![
        shape("names of its tools", against("get_number_#_of_reef")),
        shape("names like its tools", against("got_numbers_#_of_reef")),
        shape("other names", against("feed_the_otter_with_#")),
        shape("everything again and again", |bytes| {
            let rules = list(
                bytes / 2,
                r#"{"surface":{"name":"reef"},"allow":["*"]}"#,
                ",",
            );
            let spec = format!(r#""agents":["otter"],"tools":[{rules}]"#);
            let grant = object("ToolGrant", "gives", &spec);
            objects(&[agent(), reef(bytes / 2, ""), grant])
        }),
        shape("surfaces that do not exist", |bytes| {
            let rules = list(
                bytes / 2,
                r#"{"surface":{"name":"river-number-#"},"allow":["*"]}"#,
                ",",
            );
            let spec = format!(r#""agents":["otter"],"tools":[{rules}]"#);
            let surface = object("Surface", "reeve-number-#", r#""url":"https://reef.test""#);
            let surfaces = list(bytes / 2, &surface, ",");
            objects(&[agent(), object("ToolGrant", "gives", &spec), surfaces])
        }),
        shape("agents that do not exist", |bytes| {
            let names = list(bytes / 2, r#""otters-number-#""#, ",");
            let rules = r#"{"surface":{"name":"reef"},"allow":["*"]}"#;
            let spec = format!(r#""agents":["otter",{names}],"tools":[{rules}]"#);
            let agents = list(
                bytes / 2,
                &object("Agent", "otter-number-#", r#""surfaces":[]"#),
                ",",
            );
            let grant = object("ToolGrant", "gives", &spec);
            objects(&[agent(), reef(0, ""), grant, agents])
        }),
        shape("agents that it selects", |bytes| {
            let values = list(32 * 8, r#""v#""#, ",");
            let rules = r#"{"surface":{"name":"reef"},"allow":["*"]}"#;
            let spec = format!(
                r#""agentSelector":{{"matchExpressions":[{{"key":"grants.toolcrib.dev/a","operator":"In","values":[{values}]}}]}},"tools":[{rules}]"#
            );
            let agent = object("Agent", "a#", r#""surfaces":[]"#);
            let labels = r#""namespace":"pond","labels":{"grants.toolcrib.dev/a":"v10001"}"#;
            let agents = list(
                bytes,
                &agent.replacen(r#""namespace":"pond""#, labels, 1),
                ",",
            );
            objects(&[reef(0, ""), object("ToolGrant", "gives", &spec), agents])
        }),
        shape("agents that declare nothing", |bytes| {
            let names = list(bytes / 20, r#""a#""#, ",");
            let rules = list(
                bytes / 4,
                r#"{"surface":{"name":"reef"},"allow":["*"]}"#,
                ",",
            );
            let spec = format!(r#""agents":[{names}],"tools":[{rules}]"#);
            let agents = list(bytes / 2, &object("Agent", "a#", r#""surfaces":[]"#), ",");
            let grant = object("ToolGrant", "gives", &spec);
            objects(&[reef(0, ""), grant, agents])
        }),
    ]
}

fn tiers() -> Vec<Shape> {
    let with = |tier: &'static str| {
        move |bytes| {
            let tiers = list(bytes / 2, &format!(r#""{tier}":"ReadOnly""#), ",");
            let surface = reef(bytes / 2, &format!(r#","tiers":{{{tiers}}}"#));
            objects(&[agent(), surface, gives(0, "*")])
        }
    };
    vec![
        shape("tiers of its tools", with("get_number_#_of_reef")),
        shape("tiers of tools like its own", with("got_numbers_#_of_reef")),
        shape("tiers of other tools", with("feed_the_otter_with_#")),
    ]
}

fn namespaces() -> Vec<Shape> {
    let provider = |name: &str| {
        object(
            "ModelProvider",
            name,
            r#""endpoints":[{"dialect":"OpenAI","url":"https://house.test/v1"}],"auth":"None""#,
        )
    };
    let grant = |name: &str, agent: &str| {
        let rules = r#""tools":[{"surface":{"name":"reef"},"allow":["get_number_10000_of_reef"]}]"#;
        object(
            "ToolGrant",
            name,
            &format!(r#""agents":["{agent}"],{rules}"#),
        )
    };
    let defaults = |spec: &str| object("ToolDefaults", "default", spec);
    vec![
        shape("agents, grants, defaults and providers", move |bytes| {
            let agents = object("Agent", "a#", r#""surfaces":[{"name":"reef"}]"#);
            let rules = list(
                bytes / 5,
                r#"{"surface":{"name":"reef"},"allow":["*"]}"#,
                ",",
            );
            objects(&[
                agent(),
                provider("house"),
                reef(bytes / 5, ""),
                defaults(&format!(r#""tools":[{rules}]"#)),
                list(bytes / 5, &agents, ","),
                list(bytes / 5, &grant("g#", "a#"), ","),
                list(bytes / 5, &provider("p#"), ","),
            ])
        }),
        shape("grants of one agent", move |bytes| {
            let grants = list(bytes / 2, &grant("g#", "otter"), ",");
            objects(&[agent(), provider("house"), reef(bytes / 2, ""), grants])
        }),
        shape("grants of everything to one agent", move |bytes| {
            let all = r#""agents":["otter"],"tools":[{"surface":{"name":"reef"},"allow":["*"]}]"#;
            let grants = list(bytes / 2, &object("ToolGrant", "g#", all), ",");
            objects(&[agent(), provider("house"), reef(bytes / 2, ""), grants])
        }),
        shape("models of providers that do not exist", move |bytes| {
            let models = list(bytes / 2, r#""houses-number-#/m""#, ",");
            let spec = format!(r#""surfaces":[],"models":{{"allowed":[{models}]}}"#);
            let providers = list(bytes / 2, &provider("housed-number-#"), ",");
            objects(&[object("Agent", "otter", &spec), providers])
        }),
        shape("keys of a provider", |bytes| {
            let keys = list(bytes, r#"{"secretKeyRef":{"name":"keys","key":"k#"}}"#, ",");
            let endpoints = r#""endpoints":[{"dialect":"OpenAI","url":"https://house.test/v1"}]"#;
            let spec = format!(r#"{endpoints},"apiKeys":[{keys}]"#);
            objects(&[agent(), object("ModelProvider", "house", &spec)])
        }),
    ]
}

fn plans() -> Vec<Shape> {
    let world = |tool: &'static str| {
        move |bytes| {
            let house = r#""endpoints":[{"dialect":"Anthropic","url":"https://house.test/v1"}],"auth":"None""#;
            objects(&[
                agent(),
                object("ModelProvider", "house", house),
                reef(bytes / 2, ""),
                gives(bytes / 2, tool),
            ])
        }
    };
    vec![
        shape("tools that get other names", world("get_number_#_of_reef")),
        shape("everything gets another name", |bytes| {
            // The path differs from the inputs above, because descriptors are cached by their text.
            let surface = reef(bytes, "").replace(r#""/a""#, r#""/b""#);
            objects(&[agent(), surface, gives(0, "*")])
        }),
    ]
}
