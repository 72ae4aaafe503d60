//! A credential goes only where its Secret's annotations allow.
//!
//! Random surfaces and providers are checked against the rule of the guide ("Where a credential
//! may go"), which is written here a second time: as a table, without parsing URLs.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use toolcrib_compile::{
    Inputs, LastGood, ObjectRef, Presence, SecretKeyRef, Settings, compile, load, materialize,
};
use toolcrib_manifest::SecretText;

/// A URL, and the annotation entries that allow it.
#[derive(Clone, Copy, Debug)]
struct Receiver {
    url: &'static str,
    /// The entry that allows only this URL.
    exact: &'static str,
    bare: &'static str,
    /// True if the bare host is enough.
    by_bare: bool,
    service: bool,
}

const fn receiver(
    url: &'static str,
    exact: &'static str,
    bare: &'static str,
    by_bare: bool,
    service: bool,
) -> Receiver {
    Receiver {
        url,
        exact,
        bare,
        by_bare,
        service,
    }
}

#[rustfmt::skip]
const RECEIVERS: [Receiver; 9] = [
    receiver("https://reed.test/v1", "https://reed.test", "reed.test", true, false),
    receiver("http://reed.test/v1", "http://reed.test", "reed.test", false, false),
    receiver("https://reed.test:8443", "https://reed.test:8443", "reed.test", false, false),
    receiver("https://MUD.test.", "https://mud.test", "mud.test", true, false),
    receiver("http://192.0.2.7:3128", "http://192.0.2.7:3128", "192.0.2.7", false, false),
    receiver("http://fish.pond.svc", "http://fish.pond.svc", "fish.pond.svc", true, true),
    receiver("https://fish.pond.svc.cluster.local:8443", "https://fish.pond.svc:8443", "fish.pond.svc", true, true),
    receiver("http://fish.pond.svc:9999", "http://fish.pond.svc:9999", "fish.pond.svc", false, true),
    receiver("https://roach.lake.svc", "https://roach.lake.svc", "roach.lake.svc", true, true),
];

const CAS: [&str; 2] = ["one.crt", "two.crt"];

impl Receiver {
    fn is_tls(self) -> bool {
        self.exact.starts_with("https:")
    }
}

/// The route that an author configures.
#[derive(Clone, Debug)]
struct ConfiguredRoute {
    /// Endpoints of a provider; a surface's URL and token endpoint.
    receivers: Vec<Receiver>,
    /// The proxy of a provider.
    proxy: Option<Receiver>,
    ca: Option<&'static str>,
}

/// The annotations that an owner sets.
#[derive(Clone, Debug)]
struct Annotations {
    hosts: BTreeSet<&'static str>,
    cas: BTreeSet<&'static str>,
}

fn configured_route() -> impl Strategy<Value = ConfiguredRoute> {
    (
        subsequence(RECEIVERS.to_vec(), 1..=2),
        prop::option::of(select(RECEIVERS.to_vec())),
        prop::option::of(select(CAS.to_vec())),
    )
        .prop_map(|(receivers, proxy, ca)| ConfiguredRoute {
            receivers,
            proxy,
            ca,
        })
}

fn annotations() -> impl Strategy<Value = Annotations> {
    let entries: BTreeSet<&str> = RECEIVERS
        .iter()
        .flat_map(|receiver| [receiver.exact, receiver.bare])
        .chain(["*.test", "test", "reed.test:8443", "https://reed.test/v1"])
        .collect();
    let entries = Vec::from_iter(entries);
    let count = entries.len();
    (
        subsequence(entries, count / 2..=count),
        subsequence(CAS.to_vec(), 0..=2),
    )
        .prop_map(|(hosts, cas)| Annotations {
            hosts: hosts.into_iter().collect(),
            cas: cas.into_iter().collect(),
        })
}

impl ConfiguredRoute {
    /// The receivers that can read the credential. A proxy cannot read TLS, unless it may bring a
    /// CA.
    fn readers(&self) -> Vec<Receiver> {
        let reads = self.ca.is_some() || self.receivers.iter().any(|receiver| !receiver.is_tls());
        let proxy = self.proxy.filter(|_| reads);
        self.receivers.iter().copied().chain(proxy).collect()
    }

    fn is_allowed(&self, annotations: &Annotations) -> bool {
        let by_bare =
            |receiver: &Receiver| receiver.by_bare && annotations.hosts.contains(receiver.bare);
        let readers = self.readers();
        let named = readers
            .iter()
            .all(|receiver| by_bare(receiver) || annotations.hosts.contains(receiver.exact));
        let vouched = self.ca.is_none_or(|ca| {
            annotations.cas.contains(ca)
                || readers
                    .iter()
                    .all(|receiver| !receiver.is_tls() || (receiver.service && by_bare(receiver)))
        });
        named && vouched
    }

    /// Everything that a reused value must have been sent with before.
    fn notes(&self) -> BTreeSet<&'static str> {
        let readers = self.readers();
        readers
            .iter()
            .map(|receiver| receiver.exact)
            .chain(self.ca)
            .collect()
    }

    fn tls(&self) -> String {
        self.ca.map_or(String::new(), |key| {
            format!(", tls: {{caFrom: {{configMapKeyRef: {{name: corp, key: {key}}}}}}}")
        })
    }

    fn provider(&self) -> String {
        let endpoints: Vec<String> = self
            .receivers
            .iter()
            .map(|receiver| format!("{{dialect: OpenAI, url: \"{}\"}}", receiver.url))
            .collect();
        let proxy = self
            .proxy
            .map_or(String::new(), |proxy| format!(", proxy: \"{}\"", proxy.url));
        format!(
            "{{apiVersion: toolcrib.dev/v1alpha1, kind: ModelProvider, metadata: {{name: it, namespace: pond}}, spec: {{endpoints: [{}], apiKeys: [{{secretKeyRef: {{name: creds, key: client_secret}}}}]{proxy}{}}}}}\n---\n",
            endpoints.join(", "),
            self.tls()
        )
    }

    fn surface(&self) -> String {
        let auth = match self.receivers[..] {
            [_, endpoint, ..] => format!("type: OAuth, tokenUrl: \"{}\"", endpoint.url),
            _ => "type: Bearer".to_owned(),
        };
        let key = if self.receivers.len() > 1 {
            ""
        } else {
            ", key: client_secret"
        };
        format!(
            "{{apiVersion: toolcrib.dev/v1alpha1, kind: Surface, metadata: {{name: it, namespace: pond}}, spec: {{url: \"{}\", auth: {{{auth}, secretKeyRef: {{name: creds{key}}}}}{}, descriptor: {{version: 2, tools: [{{name: get, inputSchema: {{type: object}}, http: {{method: GET, path: /}}}}]}}}}}}\n---\n",
            self.receivers[0].url,
            self.tls()
        )
    }
}

fn inputs(object: &str, annotations: &Annotations) -> Inputs {
    let pem = |text: &str| {
        let pem = include_str!("../../../../crds/bounds/tests/pond.pem").replace('\n', "\\n");
        format!("\"{text}\\n{pem}\"")
    };
    let hosts = Vec::from_iter(annotations.hosts.clone()).join(", ");
    let cas: Vec<String> = annotations
        .cas
        .iter()
        .map(|key| format!("corp/{key}"))
        .collect();
    let text = format!(
        r#"{object}
{{apiVersion: v1, kind: Service, metadata: {{name: fish, namespace: pond}}, spec: {{ports: [{{port: 80}}, {{name: tls, port: 8443}}]}}}}
---
{{apiVersion: v1, kind: ConfigMap, metadata: {{name: corp, namespace: pond}}, data: {{one.crt: {}, two.crt: {}}}}}
---
{{apiVersion: v1, kind: Secret, metadata: {{name: creds, namespace: pond, labels: {{toolcrib.dev/credential: "true"}}, annotations: {{toolcrib.dev/hosts: "{hosts}", toolcrib.dev/ca: "{}"}}}}, stringData: {{client_id: i, client_secret: s}}}}
---
{{apiVersion: toolcrib.dev/v1alpha1, kind: Agent, metadata: {{name: otter, namespace: pond}}, spec: {{mode: Native, surfaces: [{{name: it}}]}}}}
---
{{apiVersion: toolcrib.dev/v1alpha1, kind: ToolGrant, metadata: {{name: all, namespace: pond}}, spec: {{agents: [otter], tools: [{{surface: {{name: it}}, allow: [get]}}]}}}}
"#,
        pem("one"),
        pem("two"),
        cas.join(" "),
    );
    let loaded = load([("pond.yaml".to_owned(), text)], Settings::default());
    assert!(loaded.errors.is_empty(), "{:?}", loaded.errors);
    loaded.inputs
}

fn secret() -> ObjectRef {
    ObjectRef::new("pond", "creds")
}

/// The keys that the agent's files refer to.
fn sent(inputs: &Inputs) -> BTreeSet<SecretKeyRef> {
    let agent = ObjectRef::new("pond", "otter");
    let compiled = compile(inputs, &agent).expect("the agent");
    compiled.sources.into_keys().collect()
}

proptest! {
    #[test]
    fn a_credential_goes_only_where_its_secret_allows(configured_route in configured_route(), annotations in annotations()) {
        let provider = sent(&inputs(&configured_route.provider(), &annotations));
        prop_assert_eq!(!provider.is_empty(), configured_route.is_allowed(&annotations), "provider");

        let surface = ConfiguredRoute { proxy: None, ..configured_route };
        let sent = sent(&inputs(&surface.surface(), &annotations));
        prop_assert_eq!(!sent.is_empty(), surface.is_allowed(&annotations), "surface");
    }

    #[test]
    fn while_its_secret_cannot_be_read_a_value_keeps_its_route(before in configured_route(), after in configured_route()) {
        let all = Annotations {
            hosts: RECEIVERS.iter().flat_map(|receiver| [receiver.exact, receiver.bare]).collect(),
            cas: CAS.into(),
        };
        let agent = ObjectRef::new("pond", "otter");
        let value = |_: &SecretKeyRef| Some(SecretText::new("s"));
        let compiled = compile(&inputs(&before.provider(), &all), &agent).expect("the agent");
        let first = materialize(&compiled, &value, &LastGood::default(), &[]);
        prop_assert!(first.missing.is_empty());

        let mut unreadable = inputs(&after.provider(), &all);
        unreadable.set_secret(secret(), Presence::Unknown("away".to_owned()));
        let compiled = compile(&unreadable, &agent).expect("the agent");
        let last_good = LastGood::read(&first.annotations, &first.files);
        let second = materialize(&compiled, &value, &last_good, &[]);
        prop_assert_eq!(second.missing.is_empty(), after.notes().is_subset(&before.notes()));
    }
}

/// Earlier releases noted bare hosts, for any scheme and port.
#[test]
fn notes_of_an_earlier_release_are_understood() {
    let annotations = Annotations {
        hosts: RECEIVERS
            .iter()
            .flat_map(|receiver| [receiver.exact, receiver.bare])
            .collect(),
        cas: CAS.into(),
    };
    let agent = ObjectRef::new("pond", "otter");
    let value = |_: &SecretKeyRef| Some(SecretText::new("s"));
    for (receiver, still) in [
        (RECEIVERS[0], true),
        (RECEIVERS[1], false),
        (RECEIVERS[5], true),
    ] {
        let configured_route = ConfiguredRoute {
            receivers: vec![receiver],
            proxy: None,
            ca: None,
        };
        let mut inputs = inputs(&configured_route.provider(), &annotations);
        let compiled = compile(&inputs, &agent).expect("the agent");
        let mut first = materialize(&compiled, &value, &LastGood::default(), &[]);
        let notes = first
            .annotations
            .get_mut("toolcrib.dev/references")
            .expect("the notes");
        assert!(
            notes.contains(&format!("[\"{}\"]", receiver.exact)),
            "{notes}"
        );
        *notes = notes.replace(receiver.exact, receiver.bare);

        inputs.set_secret(secret(), Presence::Unknown("away".to_owned()));
        let compiled = compile(&inputs, &agent).expect("the agent");
        let last_good = LastGood::read(&first.annotations, &first.files);
        let second = materialize(&compiled, &value, &last_good, &[]);
        assert_eq!(second.missing.is_empty(), still, "{}", receiver.url);
    }
}
