//! Targets for the bytes that programs send each other: reviews, watched objects, the link, a model's
//! arguments, and the answers of services.

use std::io::Write;
use std::sync::Arc;

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use serde_json::Value;
use serde_json::value::RawValue;
use toolcrib_bounds::ca;
use toolcrib_dialect::{Dialect, Request};
use toolcrib_manifest::{LinkDown, LinkUp, Tier, ToolsFile};
use toolcrib_mcp_stdio::listed::ListedTools;
use toolcrib_mediation::{Authority, Catalog, ClawId, DirectCall, PresentedTools, Scrubber};
use toolcrib_operator::foreign as operator;
use toolcrib_sidecar::foreign as mediator;

use super::{WORDS, fixtures, fuzz, round_trip, texts};

/// Runs a target of bytes.
fn fuzz_bytes(target: &str, seeds: &[Vec<u8>], run: impl Fn(&[u8])) {
    toolcrib_fuzz::fuzz(target, seeds, WORDS, |bytes, _| run(bytes));
}

#[test]
fn reviews_of_pods_are_answered() {
    let seeds = texts(&[
        r#"{"kind":"AdmissionReview","request":{"uid":"u-7","namespace":"pond","name":"otter","kind":{"kind":"Pod"},"operation":"CREATE","object":{"metadata":{"labels":{"toolcrib.dev/agent":"otter"},"annotations":{"a":"b"}},"spec":{"automountServiceAccountToken":false,"containers":[{"name":"c","image":"i","command":["a"],"env":[{"name":"NO_PROXY","value":"a,b"},{"name":"V","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}],"ports":[{"containerPort":80}],"securityContext":{"capabilities":{"add":["NET_ADMIN"],"drop":["ALL"]},"runAsUser":0},"volumeMounts":[{"name":"v","mountPath":"/v"}]}],"initContainers":[{"name":"istio-init","restartPolicy":"Always"}],"volumes":[{"name":"v","projected":{"sources":[{"serviceAccountToken":{"audience":"a","path":"p"}},{"secret":{"name":"s"}}]}}]}}}}"#,
        r#"{"request":{"uid":"u-7","operation":"UPDATE","kind":{"kind":"Pod"},"object":{"metadata":{}},"oldObject":null}}"#,
    ]);
    let admission = operator::Admission::default();
    fuzz("review of a pod", &seeds, |text| {
        if let Some(answer) = admission.inject(text.as_bytes()) {
            let answer: Value = serde_json::from_str(&answer).unwrap();
            assert!(answer["response"]["uid"].is_string(), "{answer}");
        }
    });
}

#[test]
fn reviews_of_objects_are_answered() {
    let seeds = texts(&[
        r#"{"request":{"uid":"u-7","kind":{"kind":"Surface"},"operation":"UPDATE","namespace":"pond","name":"reef","oldObject":{"metadata":{"name":"reef","namespace":"pond"},"spec":{"url":"https://reef.test","tiers":{"t":"ReadOnly"},"descriptor":{"version":2,"tools":[]}}},"object":{"metadata":{"name":"reef","namespace":"pond"},"spec":{"url":"https://reef.test:8443/a","auth":{"type":"OAuth","tokenUrl":"https://a.test","secretKeyRef":{"name":"s","key":"k"}},"descriptor":{"version":2,"tools":[{"name":"t","annotations":{"readOnly":true},"inputSchema":{"properties":{"a":{"pattern":"^a"}}},"http":{"method":"GET","path":"/a/{a}"}}]}}}}}"#,
        r#"{"request":{"uid":"u-7","kind":{"kind":"ToolGrant"},"operation":"CREATE","namespace":"pond","name":"g","object":{"metadata":{"name":"g","namespace":"pond"},"spec":{"agents":["otter"],"tools":[{"surface":{"name":"reef"},"allow":["t","*"],"descriptorDigest":"sha256:0"}]}}}}"#,
        r#"{"request":{"uid":"u-7","kind":{"kind":"Agent"},"operation":"CREATE","namespace":"pond","name":"a","object":{"metadata":{"name":"a","namespace":"pond"},"spec":{"surfaces":[{"name":"reef","as":"r"}],"models":{"default":"house/m","allowed":["house/n"]},"policy":{"toolTimeout":"5s","maxTier":"Elevated"},"egress":"Declared","extraEgress":[{"cidr":"10.0.0.0/8"}]}}}}"#,
        r#"{"request":{"uid":"u-7","kind":{"kind":"ModelProvider"},"operation":"CREATE","namespace":"pond","name":"house","object":{"metadata":{"name":"house","namespace":"pond"},"spec":{"endpoints":[{"dialect":"OpenAI","url":"https://house.test/v1"}],"apiKeys":[{"secretKeyRef":{"name":"k","key":"k"}}],"passHeaders":["x-a-*"],"proxy":"http://p.test:1"}}}}"#,
    ]);
    fuzz("review of an object", &seeds, |text| {
        if let Some(answer) = operator::validate(text.as_bytes()) {
            let answer: Value = serde_json::from_str(&answer).unwrap();
            assert!(answer["response"]["allowed"].is_boolean(), "{answer}");
        }
    });
}

#[test]
fn watched_objects_are_decoded_or_left_out() {
    let seeds = texts(&[
        r#"{"apiVersion":"toolcrib.dev/v1alpha1","kind":"Surface","metadata":{"name":"reef","namespace":"pond","uid":"u","resourceVersion":"7","creationTimestamp":"2026-11-24T00:00:00Z","annotations":{"a":"b"},"ownerReferences":[{"apiVersion":"v1","kind":"K","name":"n","uid":"u"}],"managedFields":[{"manager":"m","fieldsV1":{"f:a":{}}}]},"spec":{"url":"https://reef.test","descriptor":{"version":2}},"status":{"conditions":[{"type":"Accepted","status":"True","reason":"R","message":"m","lastTransitionTime":"2026-11-24T00:00:00Z"}]}}"#,
        r#"{"metadata":{"name":"g","namespace":"pond"},"spec":{"agents":{"all":"of them"},"tools":7,"suspend":true}}"#,
    ]);
    fuzz("watched object", &seeds, |text| {
        operator::watched(text);
    });
}

#[test]
fn ca_bundles_are_read_or_refused() {
    let certificate = include_str!("../../../../crds/bounds/tests/pond.pem");
    let seeds = texts(&[
        certificate,
        "-----BEGIN CERTIFICATE-----\nQUFB\n-----END CERTIFICATE-----\n",
        "# a remark\r\n-----BEGIN A-----\nProc-Type: 4\n\nQQ==\n-----END A-----\n",
    ]);
    fuzz("CA bundle", &seeds, |text| {
        if let Ok(certificates) = ca::certificates(text) {
            // The mediator loads every bundle that compile has accepted, so it must have a
            // certificate.
            assert!(!certificates.is_empty());
        }
    });
}

#[test]
fn messages_of_the_link_read_as_they_are_written() {
    let reports = texts(&[
        r#"{"epoch":"e","version":"9","understands":["a"],"loaded":{"manifest":"m","credentials":"c","at":"2026-11-24T00:00:00Z"},"error":"no","seen":9223372036854775807,"hold_ms":30000,"withheld":[{"tool":"reef.t","reason":"r"}],"runner":"Admitted","usage":{"requests":18446744073709551615,"last_call":"2026-11-24T00:00:00Z"}}"#,
        r#"{"epoch":"e","version":"9","rates":[{"tool":"reef.t","rule":"r1:a","counts":[{"calls":{"-3":2,"0":18446744073709551615},"per_ms":60000}]}]}"#,
    ]);
    fuzz("link report", &reports, |text| {
        let read = round_trip::<LinkUp>(text).is_some();
        let requests = operator::report(text.as_bytes());
        assert_eq!(requests.is_some(), read);
        // JavaScript and the API server can represent a number below 2^53.
        assert!(requests.is_none_or(|requests| requests < 1 << 53));
    });
    let answers = texts(&[
        r#"{"seq":7,"want":{"manifest":"m","credentials":"c"},"floor":{"tools":{"reef.t":"v1:a"},"feeds":["reef/f"],"providers":["house"],"models":["house/m"]},"agent":"Present"}"#,
        r#"{"seq":7,"agent":"Present","rates":[{"tool":"reef.t","rule":"r1:a","counts":[{"calls":{"3":2},"per_ms":60000}]}]}"#,
    ]);
    fuzz("link answer", &answers, |text| {
        round_trip::<LinkDown>(text);
    });
}

#[test]
fn arguments_are_refused_or_sent_with_one_meaning() {
    let seeds = texts(&[
        r#"{"a":"x","b\u0061":[1.0,{"c":null}]}"#,
        r#"{"claw_id":"x","CLAW_ID":"y","claw.id":1,"a":100000000000000001}"#,
        r#"{"a":"..%2e\\","d":{"e":"é"}}"#,
    ]);
    let authorities: Vec<Authority> = fixtures("tools.json")
        .iter()
        .map(|text| {
            let file: ToolsFile = serde_json::from_str(text).unwrap();
            Authority::new(Arc::new(Catalog::load(&file, Tier::Elevated)), None)
        })
        .collect();
    let names: Vec<Vec<String>> = fixtures("tools.json")
        .iter()
        .map(|text| {
            let file: ToolsFile = serde_json::from_str(text).unwrap();
            file.tools.iter().map(|tool| tool.name.clone()).collect()
        })
        .collect();
    let request = br#"{"model":"m","messages":[]}"#.to_vec();
    let request = Request::decode(Dialect::OpenaiChat, request).unwrap();
    let claw_id = ClawId {
        name: "otter".to_owned(),
        namespace: "pond".to_owned(),
    };
    fuzz("arguments of a call", &seeds, |text| {
        for (authority, names) in authorities.iter().zip(&names) {
            let presented = PresentedTools::new(authority, &request, jiff::Timestamp::UNIX_EPOCH);
            for name in names {
                DirectCall::new(&presented, &claw_id, name, text);
            }
        }
    });
}

#[test]
fn answers_of_services_are_unpacked_within_a_bound_and_scrubbed() {
    const SECRET: &str = "correct-horse-battery-staple";
    let text = format!(r#"{{"a":"{SECRET}","b":[1.0,"\u0061"]}}"#);
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(text.as_bytes()).unwrap();
    let mut zlib = ZlibEncoder::new(Vec::new(), Compression::best());
    zlib.write_all(&[text.as_bytes(), &[0; 4000]].concat())
        .unwrap();
    let mut stored = GzEncoder::new(Vec::new(), Compression::none());
    stored.write_all(text.as_bytes()).unwrap();
    let seeds = [
        text.clone().into_bytes(),
        gzip.finish().unwrap(),
        zlib.finish().unwrap(),
        stored.finish().unwrap(),
    ];
    let scrubber = Scrubber::new([SECRET]);
    fuzz_bytes("answer of a service", &seeds, |bytes| {
        for encoding in ["identity", "gzip", "deflate", "br"] {
            let Some(clean) = mediator::answer(encoding, bytes, &scrubber) else {
                continue;
            };
            assert!(clean.len() < 64 * 1024, "{} bytes", clean.len());
            let clean = String::from_utf8_lossy(&clean);
            assert!(!clean.contains(SECRET), "{clean}");
        }
        mediator::token(bytes);
    });
}

#[test]
fn results_of_mcp_servers_are_read_or_refused() {
    let seeds = texts(&[
        r#"{"jsonrpc":"2.0","id":7,"result":{"resultType":"complete","isError":false,"content":[{"type":"text","text":"a"},{"type":"image","data":"QQ==","mimeType":"image/png"},{"type":"resource","resource":{"uri":"a:b","blob":"QQ=="}},{"type":"resource_link","uri":"a:b","name":"n"}],"supportedVersions":["2026-07-28"],"protocolVersion":"2025-11-25"}}"#,
        r#"{"jsonrpc":"2.0","id":"s-1","method":"sampling/createMessage","params":{}}"#,
        r#"{"tools":[{"name":"t","inputSchema":{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}}]}"#,
    ]);
    fuzz("result of an MCP call", &seeds, |text| {
        mediator::mcp_message(text);
        if let Ok(page) = serde_json::from_str::<Box<RawValue>>(text) {
            ListedTools::default().learn(&page);
        }
    });
}
