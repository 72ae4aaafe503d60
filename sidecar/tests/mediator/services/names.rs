//! Names are resolved by the name servers in the agent's files, independent of the pod's own
//! files.

use std::net::{IpAddr, Ipv4Addr};

use hickory_resolver::proto::op::ResponseCode;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use toolcrib_sidecar::outbound::resolver::ResolveError;

use crate::support::{Answer, Files, IN_A_POD, NameServer, Reply, World, within};

const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// Also an address of this machine; nothing of the test listens there.
const EVIL: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 66);
const QUOTE: &str = r#"{"symbol":"OTR"}"#;

/// A mediator whose files name `server`, and that may dial this machine.
async fn world(server: &NameServer) -> World {
    let dns = server.setting();
    let named = |files: &mut Files| files.agent["dns"] = dns;
    World::start_with(named, |_| {}, &[]).await
}

/// The desk's URL with another host.
fn at(world: &World, host: &str) -> String {
    world.desk.url().replace("127.0.0.1", host)
}

/// Sends a request to the desk by this name over a new connection.
async fn fetch(world: &World, host: &str) -> Result<String, ResolveError> {
    let client = world.server.app.outbound.fresh_client(None, None).unwrap();
    world.desk.will(Answer::text(200, "quack"));
    let answer = within("an answer", client.get(at(world, host)).send()).await;
    match answer {
        Ok(answer) => Ok(within("its body", answer.text()).await.unwrap()),
        Err(error) => Err(ResolveError::of(&error)
            .unwrap_or_else(|| panic!("{error:?}"))
            .clone()),
    }
}

#[tokio::test]
async fn each_host_is_asked_for_by_one_absolute_name() {
    let server = NameServer::start().await;
    let world = world(&server).await;
    for (host, absolute) in [
        ("desk.lake.svc", "desk.lake.svc.reef.example."),
        ("desk", "desk.pond.svc.reef.example."),
        ("desk.lake.svc.reef.example", "desk.lake.svc.reef.example."),
        ("desk.lake", "desk.lake."),
        ("api.example.com", "api.example.com."),
        ("www.example.com.", "www.example.com."),
        // Every machine's /etc/hosts has this name.
        ("localhost", "localhost.pond.svc.reef.example."),
    ] {
        let asked = server.asked().len();
        assert_eq!(fetch(&world, host).await, Err(ResolveError::NotFound));
        for (_, name) in server.asked().split_off(asked) {
            assert_eq!(name, absolute, "{host}");
        }
    }
    assert_eq!(world.desk.connections(), 0);
}

#[tokio::test]
async fn tools_feeds_and_models_are_resolved_by_the_name_server() {
    let server = NameServer::start().await;
    for name in ["desk.pond.svc.", "feed.pond.svc.", "model.pond.svc."] {
        server.says(&format!("{name}reef.example."), [Reply::address(HERE)]);
    }
    let mut world = world(&server).await;
    let desk = at(&world, "desk.pond.svc");
    world.files.tools["tools"][0]["execution"]["base_url"] = json!(desk);
    let feed = format!("{}/news", at(&world, "feed.pond.svc"));
    world.files.feeds = json!([{"name": "news", "source": "desk", "path": "/news", "ttl": 60,
        "url": feed}]);
    let model = world.model.url().replace("127.0.0.1", "model.pond.svc");
    world.files.providers["providers"]["house"]["endpoints"][0]["base_url"] =
        json!(format!("{model}/v1"));
    world.publish().await;

    world.desk.will(Answer::text(200, "quack"));
    world.desk.will(Answer::json(json!({"price": 7})));
    world
        .model
        .will(world.wire.will_call(&[("call_1", "desk__quote", QUOTE)]));
    world.model.will(world.wire.will_say("done"));
    world.chat().await;

    let desk = world.desk.requests();
    let hosts: Vec<_> = desk.iter().map(|it| it.header("host").unwrap()).collect();
    let port = world.desk.url().rsplit_once(':').unwrap().1.to_owned();
    assert_eq!(
        hosts,
        [
            format!("feed.pond.svc:{port}"),
            format!("desk.pond.svc:{port}")
        ]
    );
    assert_eq!(world.model.requests().len(), 2);
    assert_eq!(
        server.names(),
        [
            "desk.pond.svc.reef.example.",
            "feed.pond.svc.reef.example.",
            "model.pond.svc.reef.example."
        ]
    );
}

#[tokio::test]
async fn a_resolution_error_names_its_cause() {
    let server = NameServer::start().await;
    let world = world(&server).await;
    server.says("none.example.", [Reply::Addresses(Vec::new(), 30)]);
    server.says("silent.example.", []);
    server.says("garbage.example.", [Reply::Garbage]);
    for (name, code) in [
        ("refused.example.", ResponseCode::Refused),
        ("failed.example.", ResponseCode::ServFail),
        ("missing.example.", ResponseCode::NXDomain),
    ] {
        server.says(name, [Reply::Code(code)]);
    }
    let long = format!("{}.example", "a".repeat(64));
    for (host, code) in [
        ("missing.example", "nxdomain"),
        ("none.example", "no_address"),
        ("refused.example", "refused"),
        ("failed.example", "server_failed"),
        ("garbage.example", "bad_answer"),
        ("silent.example", "timeout"),
        (&long, "not_a_name"),
    ] {
        let error = fetch(&world, host).await.unwrap_err();
        assert_eq!(error.code(), code, "{host}: {error:?}");
    }
    assert_eq!(world.desk.connections(), 0);
}

#[tokio::test]
async fn a_truncated_answer_is_requested_over_tcp() {
    let server = NameServer::start().await;
    let world = world(&server).await;
    server.says("large.example.", [Reply::Truncated(HERE.into())]);
    assert_eq!(fetch(&world, "large.example").await.unwrap(), "quack");
    let asked = server.asked();
    let large = "large.example.".to_owned();
    assert!(asked.contains(&("udp", large.clone())), "{asked:?}");
    assert!(asked.contains(&("tcp", large)), "{asked:?}");
}

#[tokio::test]
async fn a_forged_answer_before_the_right_one_is_ignored() {
    let server = NameServer::start().await;
    let world = world(&server).await;
    let port = world.desk.url().rsplit_once(':').unwrap().1.to_owned();
    // Accepts connections to the forged address.
    let evil = TcpListener::bind(format!("{EVIL}:{port}")).await.unwrap();
    let stolen = tokio::spawn(async move {
        let (mut stream, _) = evil.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
    });
    let ip = IpAddr::V4(EVIL);
    for (host, forged) in [
        ("a.example", Reply::WrongId(ip)),
        ("b.example", Reply::WrongQuestion(ip)),
        ("c.example", Reply::FromElsewhere(ip)),
    ] {
        server.says(&format!("{host}."), [forged, Reply::address(HERE)]);
        assert_eq!(fetch(&world, host).await.unwrap(), "quack", "{host}");
    }
    assert!(!stolen.is_finished());
    assert_eq!(world.desk.connections(), 3);
}

#[tokio::test]
async fn aliases_are_followed_and_a_loop_of_them_ends() {
    let server = NameServer::start().await;
    let world = world(&server).await;
    server.says("one.example.", [Reply::Alias("two.example.")]);
    server.says("two.example.", [Reply::Alias("three.example.")]);
    server.says("three.example.", [Reply::address(HERE)]);
    assert_eq!(fetch(&world, "one.example").await.unwrap(), "quack");

    server.says("round.example.", [Reply::Alias("about.example.")]);
    server.says("about.example.", [Reply::Alias("round.example.")]);
    let before = server.asked().len();
    assert!(fetch(&world, "round.example").await.is_err());
    let asked = server.asked().len() - before;
    assert!(asked <= 32, "{asked} questions");
}

#[tokio::test]
async fn answers_are_cached_for_their_ttl() {
    let server = NameServer::start().await;
    let world = world(&server).await;
    server.says("kept.example.", [Reply::address(HERE)]);
    server.says("brief.example.", [Reply::Addresses(vec![HERE.into()], 0)]);
    for _ in 0..3 {
        for host in ["kept.example", "brief.example"] {
            assert_eq!(fetch(&world, host).await.unwrap(), "quack");
        }
    }
    let times = |name: &str| server.asked().iter().filter(|(_, it)| it == name).count();
    // For both kinds of addresses; the absence of IPv6 addresses is cached in any case.
    assert_eq!(times("kept.example."), 2);
    assert_eq!(times("brief.example."), 3 + 1);
}

#[tokio::test]
async fn changed_name_servers_in_the_files_are_used() {
    let (first, second) = (NameServer::start().await, NameServer::start().await);
    first.says("desk.example.", [Reply::address(EVIL)]);
    second.says("desk.example.", [Reply::address(HERE)]);
    let mut world = world(&first).await;
    let unreachable = world.server.app.outbound.fresh_client(None, None).unwrap();
    let answer = unreachable.get(at(&world, "desk.example")).send().await;
    assert!(answer.unwrap_err().is_connect());

    world.files.agent["dns"] = second.setting();
    world.publish().await;
    assert_eq!(fetch(&world, "desk.example").await.unwrap(), "quack");

    // An operator that was rolled back no longer writes any.
    world.files.agent["dns"] = Value::Null;
    world.publish().await;
    assert_eq!(fetch(&world, "desk.example").await.unwrap(), "quack");
    assert_eq!(
        fetch(&world, "localhost").await,
        Err(ResolveError::NotFound)
    );
}

#[tokio::test]
async fn without_name_servers_no_name_resolves() {
    let server = NameServer::start().await;
    let mut world = world(&server).await;
    world.files.agent["dns"]["name_servers"] = json!([]);
    world.publish().await;
    let error = fetch(&world, "localhost").await;
    assert_eq!(error, Err(ResolveError::NoNameServers));
    assert_eq!(server.names(), [""; 0]);
}

/// Any container of the pod could answer there.
#[tokio::test]
async fn a_name_server_in_the_pod_is_not_used() {
    let server = NameServer::start().await;
    let dns = server.setting();
    let named = |files: &mut Files| files.agent["dns"] = dns;
    let world = World::start_with(named, |_| {}, &[IN_A_POD]).await;
    let error = fetch(&world, "desk.example").await;
    assert_eq!(error, Err(ResolveError::NoNameServers));
    assert_eq!(server.names(), [""; 0]);
}
