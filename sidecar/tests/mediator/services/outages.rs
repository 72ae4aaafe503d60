//! The effect of each kind of outage: in the model's result, in the program's error, in the
//! record and in the log. The table is kept beside this file.

use rcgen::CertificateParams;
use serde_json::{Map, Value, json};

use super::hostile::Authority;
use crate::process::binary::Mediator;
use crate::support::{Fake, Files, NameServer, Raw, RawAnswer, Reply, Wire, until, within};

/// A service or provider that fails.
struct Outage {
    name: &'static str,
    url: String,
    /// The CA in the files for it.
    ca: Option<String>,
    /// Kept so that it continues to listen.
    _server: Option<Box<dyn std::any::Any>>,
}

/// At least the number of attempts per outage, with room for other keys.
const TIMES: usize = 8;

fn whole(status: &str, kind: &str, body: &str) -> RawAnswer {
    let length = body.len();
    RawAnswer::keep(format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{body}"
    ))
}

async fn says(name: &'static str, said: RawAnswer) -> Outage {
    let server = Raw::start(vec![said; TIMES]).await;
    Outage {
        name,
        url: server.url(),
        ca: None,
        _server: Some(Box::new(server)),
    }
}

async fn refuses(name: &'static str, status: &str, body: &str) -> Outage {
    says(name, whole(status, "application/json", body)).await
}

async fn over_tls(
    name: &'static str,
    authority: &Authority,
    ca: Option<String>,
    edit: impl FnOnce(&mut CertificateParams),
) -> Outage {
    let script = vec![whole("200 OK", "application/json", "1"); TIMES];
    let server = Raw::start_tls(script, authority.server(edit)).await;
    Outage {
        name,
        url: format!("https://{}", server.address),
        ca,
        _server: Some(Box::new(server)),
    }
}

/// A server whose self-signed certificate is a CA's, and is named as the CA.
async fn self_signed_ca(name: &'static str) -> Outage {
    let authority = Authority::new();
    let script = vec![whole("200 OK", "application/json", "1"); TIMES];
    let server = Raw::start_tls(script, authority.as_server()).await;
    Outage {
        name,
        url: format!("https://{}", server.address),
        ca: Some(authority.pem),
        _server: Some(Box::new(server)),
    }
}

fn nowhere(name: &'static str, url: &str) -> Outage {
    Outage {
        name,
        url: url.to_string(),
        ca: None,
        _server: None,
    }
}

async fn outages() -> Vec<Outage> {
    let (authority, other) = (Authority::new(), Authority::new());
    let ours = Some(authority.pem.clone());
    let expired = |params: &mut CertificateParams| {
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(2002, 1, 1);
    };
    let not_yet = |params: &mut CertificateParams| {
        params.not_before = rcgen::date_time_ymd(2901, 1, 1);
        params.not_after = rcgen::date_time_ymd(2902, 1, 1);
    };
    let elsewhere = |params: &mut CertificateParams| {
        *params = CertificateParams::new(vec!["heron.test".to_string()]).unwrap();
    };
    let plain = Fake::start().await;
    let error = r#"{"error":{"message":"no","type":"quack","code":"quack"}}"#;
    vec![
        nowhere("refused", "http://127.0.0.1:1"),
        nowhere("no-such-name", "http://desk.nowhere.example"),
        nowhere("metadata-address", "http://metadata.example"),
        nowhere("metadata-literal", "http://169.254.169.254"),
        says("silent", RawAnswer::hang("")).await,
        says("closed", RawAnswer::close("")).await,
        says(
            "broken-off",
            RawAnswer::close("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{"),
        )
        .await,
        says("no-http", RawAnswer::close("SSH-2.0-quack\r\n")).await,
        Outage {
            name: "plain-http-at-https",
            url: plain.url().replace("http:", "https:"),
            ca: None,
            _server: Some(Box::new(plain)),
        },
        over_tls("tls-expired", &authority, ours.clone(), expired).await,
        over_tls("tls-not-yet-valid", &authority, ours.clone(), not_yet).await,
        self_signed_ca("tls-self-signed-ca").await,
        over_tls("tls-other-host", &authority, ours, elsewhere).await,
        over_tls("tls-other-ca", &authority, Some(other.pem), |_| {}).await,
        over_tls("tls-private-ca", &authority, None, |_| {}).await,
        refuses("401", "401 Unauthorized", error).await,
        refuses("403", "403 Forbidden", error).await,
        refuses("404", "404 Not Found", error).await,
        refuses("429", "429 Too Many Requests", error).await,
        refuses("500", "500 Internal Server Error", error).await,
        refuses("503", "503 Service Unavailable", error).await,
        says("html", whole("200 OK", "text/html", "<h1>Welcome</h1>")).await,
        says("empty", whole("200 OK", "application/json", "")).await,
    ]
}

/// Adds a tool, a tool whose token is from an issuer, and a provider for each outage.
fn edit(files: &mut Files, outages: &[Outage], names: &NameServer) {
    files.agent["dns"] = names.setting();
    files.tools["policy"]["timeout_per_tool_ms"] = json!(3000);
    files.tools["policy"]["total_timeout_ms"] = json!(6000);
    let (mut tools, mut services) = (Vec::new(), Map::new());
    for outage in outages {
        let mut tool = files.tools["tools"][0].clone();
        tool["name"] = json!(format!("{0}.quote", outage.name));
        tool["execution"]["base_url"] = json!(outage.url);
        tool["execution"]["service"] = json!(outage.name);
        tools.push(tool.clone());
        // The service of this tool works, and its token's issuer does not.
        tool["name"] = json!(format!("{}-issuer.quote", outage.name));
        tool["execution"]["base_url"] = files.tools["tools"][0]["execution"]["base_url"].clone();
        tool["execution"]["service"] = json!(outage.name);
        tool["execution"]["auth"] = json!({"type": "oauth", "token_url": format!("{}/token", outage.url),
            "client_id": "otter", "client_secret": "client-s3cret"});
        tools.push(tool);
        let mut provider = files.providers["providers"]["house"].clone();
        provider["endpoints"][0]["base_url"] = json!(format!("{}/v1", outage.url));
        if let Some(ca) = &outage.ca {
            let tls = json!({ "ca": ca });
            services.insert(outage.name.to_string(), json!({ "tls": tls }));
            provider["tls"] = tls;
        }
        files.providers["providers"][outage.name] = provider;
        let model = json!(format!("{}/otter-1", outage.name));
        files.agent["models"]["allowed"]
            .as_array_mut()
            .unwrap()
            .push(model);
    }
    files.tools["tools"] = json!(tools);
    files.tools["x-toolcrib"] = json!({ "services": services });
}

/// The log lines about a failure, without values that differ between runs. A line about another
/// address is of an earlier outage: a token is waited for longer than a call.
fn failures(log: &[Value], outage: &Outage) -> Vec<String> {
    log.iter()
        .filter(|line| line["level"] == "WARN" || line["level"] == "ERROR")
        .filter(|line| line["address"].is_null() || line["address"] == *outage.url)
        .map(|line| {
            let mut line = line.clone();
            let fields = line.as_object_mut().unwrap();
            for name in [
                "timestamp",
                "target",
                "request_id",
                "agent_id",
                "span",
                "spans",
            ] {
                fields.remove(name);
            }
            line.to_string()
        })
        .collect()
}

fn connection(line: &Value) -> String {
    match line.get("connection") {
        None => "none".to_string(),
        Some(connection) => connection.to_string(),
    }
}

/// Replaces the outage's own port in `text` by `PORT`.
fn without_port(text: &str, outage: &Outage) -> String {
    match outage.url.rsplit_once(':') {
        Some((_, port)) if port.parse::<u16>().is_ok_and(|port| port > 1) => {
            text.replace(port, "PORT")
        }
        Some(_) | None => text.to_string(),
    }
}

/// Waits until a request has its line in the log and in the record.
async fn recorded(mediator: &Mediator, before: &RecordMark) -> Value {
    until("the log's line", || {
        let log = mediator.log();
        let ended = |line: &Value| line["message"] == "request";
        log[before.log..].iter().any(ended).then_some(())
    })
    .await;
    until("the record's line", || {
        mediator.turns().get(before.turns).cloned()
    })
    .await
}

/// Number of lines before a request.
struct RecordMark {
    log: usize,
    turns: usize,
}

impl RecordMark {
    fn of(mediator: &Mediator) -> RecordMark {
        RecordMark {
            log: mediator.log().len(),
            turns: mediator.turns().len(),
        }
    }
}

async fn of_service(mediator: &Mediator, outage: &Outage) -> String {
    of_tool(mediator, outage, "service", outage.name).await
}

/// The same for a tool whose service works, and whose token does not come.
async fn of_issuer(mediator: &Mediator, outage: &Outage) -> String {
    let surface = format!("{}-issuer", outage.name);
    of_tool(mediator, outage, "issuer", &surface).await
}

async fn of_tool(mediator: &Mediator, outage: &Outage, role: &str, surface: &str) -> String {
    let wire = Wire::CHAT;
    let before = RecordMark::of(mediator);
    let tool = format!("{surface}__quote");
    let call = wire.will_call(&[("c1", &tool, r#"{"symbol":"OTR"}"#)]);
    mediator.model.will(call);
    mediator.model.will(wire.will_say("done"));
    let (status, _) = mediator.ask().await;
    assert_eq!(status, 200, "{tool}");
    let request = mediator.model.requests().pop().unwrap().json();
    let result = wire.results(&request).remove(0).1;
    let turn = recorded(mediator, &before).await;
    let call = &turn["tool_trace"][0]["tool_calls"][0];
    let mut text = format!("{role} {}\n  model reads  {result}\n", outage.name);
    let (executed, connection) = (&call["executed"], connection(call));
    text += &format!("  record       executed {executed}, connection {connection}\n");
    for line in failures(&mediator.log()[before.log..], outage) {
        text += &format!("  log          {line}\n");
    }
    text
}

async fn of_provider(mediator: &Mediator, outage: &Outage) -> String {
    let before = RecordMark::of(mediator);
    let mut body = Wire::CHAT.chat();
    body["model"] = json!(format!("{}/otter-1", outage.name));
    let response = within("an answer", mediator.request(&body).send()).await;
    let response = response.unwrap();
    let status = response.status().as_u16();
    let answer = within("its body", response.text()).await.unwrap();
    let turn = recorded(mediator, &before).await;
    let mut text = format!("provider {}\n", outage.name);
    text += &format!("  program gets {status} {answer}\n");
    let (error, connection) = (&turn["error"], connection(&turn));
    text += &format!("  record       error {error}, connection {connection}\n");
    for line in failures(&mediator.log()[before.log..], outage) {
        text += &format!("  log          {line}\n");
    }
    text
}

#[tokio::test]
async fn each_outage_has_the_documented_messages() {
    let (outages, names) = (outages().await, NameServer::start().await);
    let metadata = std::net::Ipv4Addr::new(169, 254, 169, 254);
    names.says("metadata.example.", [Reply::address(metadata)]);
    let files = |files: &mut Files| edit(files, &outages, &names);
    let mediator = Mediator::start_with_files(Wire::CHAT, files, &[]).await;
    let mut found = String::new();
    for outage in &outages {
        for text in [
            of_service(&mediator, outage).await,
            of_provider(&mediator, outage).await,
            // Last, so that the line of its token, which is waited for longer, is none of these.
            of_issuer(&mediator, outage).await,
        ] {
            found += &without_port(&text, outage);
            found += "\n";
        }
    }
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/mediator/services/outages.txt"
    );
    toolcrib_golden::expect(toolcrib_golden::here!(), path.as_ref(), &found);
}
