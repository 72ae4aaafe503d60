//! Converts images to Surfaces, from a real registry, with layers that hide each other's files.

#![expect(clippy::unwrap_used, reason = "a panic in a test is its report")]

#[path = "../common/mod.rs"]
mod common;
mod registry;

use std::fs;
use std::process::Output;

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::WWW_AUTHENTICATE;
use axum::response::Redirect;
use axum::routing::get;
use common::{run, text};
use registry::{
    AllowedUsers, CONFIG, GZIP, INDEX, MANIFEST, PLAIN, Registry, USER, archive, compressed,
};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

const SERVICE: &[&str] = &["--service", "fish:8080"];

/// Runs `surface from-image`. The docker config in the folder has no credential.
fn from_image(folder: &tempfile::TempDir, image: &str, flags: &[&str]) -> Output {
    let config = folder.path().join("docker.json");
    if !config.exists() {
        fs::write(config, "{}").unwrap();
    }
    let mut all = vec!["surface", "from-image", image, "--name", "fish"];
    all.extend(["-n", "pond", "--docker-config", "docker.json"]);
    all.extend(flags);
    run(folder.path(), &all)
}

/// Runs it for an image of the registry, which has no TLS.
fn from_plain(folder: &tempfile::TempDir, image: &str, flags: &[&str]) -> Output {
    from_image(folder, image, &[&["--plain-http"], flags].concat())
}

fn new(folder: &tempfile::TempDir, image: &str) -> Output {
    from_plain(folder, image, SERVICE)
}

#[track_caller]
fn succeeded(output: &Output) -> String {
    let errors = text(&output.stderr);
    assert!(output.status.success(), "{errors}");
    text(&output.stdout)
}

#[track_caller]
fn failed(output: &Output, code: i32, words: &str) {
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{errors}");
    assert!(errors.contains(words), "{errors}");
}

fn object(yaml: &str) -> Value {
    serde_yaml::from_str(yaml).unwrap()
}

fn descriptor(description: &str) -> Value {
    json!({
        "version": 2,
        "description": description,
        "tools": [{"name": "swim", "description": "Swims.", "http": {"method": "GET", "path": "/swim"},
            "inputSchema": {"type": "object", "properties": {"far": {"type": "boolean"}}},
            "annotations": {"destructive": true}}],
    })
}

fn described(description: &str) -> String {
    descriptor(description).to_string()
}

fn list() -> String {
    let tool = json!({"name": "dive", "inputSchema": {"type": "object", "properties": {"x": {"type": "string"}}}});
    json!({"tools": [tool]}).to_string()
}

#[test]
fn the_labelled_file_becomes_a_surface_with_its_skill_and_digest() {
    let registry = Registry::start(AllowedUsers::Anybody);
    let mut written = descriptor("Labelled");
    written["skill"] = "skills/swim.md".into();
    let below = archive(&[
        (".claw-describe.json", &described("Not this")),
        ("opt/claw.json", &written.to_string()),
    ]);
    let above = archive(&[("opt/skills/swim.md", "Swim at noon.")]);
    let layers = vec![
        registry.blob(GZIP, compressed(&below)),
        registry.blob(PLAIN, above),
    ];
    let digest = registry.image("1", json!({"claw.describe": "/opt/claw.json"}), layers);

    let folder = tempfile::tempdir().unwrap();
    let output = new(&folder, &registry.reference("1"));
    let yaml = succeeded(&output);
    let mut expected = descriptor("Labelled");
    expected["skillText"] = "Swim at noon.".into();
    let surface = json!({
        "apiVersion": "toolcrib.dev/v1alpha1",
        "kind": "Surface",
        "metadata": {
            "name": "fish",
            "namespace": "pond",
            "annotations": {"toolcrib.dev/image": format!("{}@{digest}", registry.reference("1"))},
        },
        "spec": {"service": {"name": "fish", "port": 8080}, "descriptor": expected},
    });
    assert_eq!(object(&yaml), surface);
    for output in [yaml, text(&output.stderr)] {
        assert!(
            output.contains("look: swim: says that it destroys"),
            "{output}"
        );
    }

    let alone = from_plain(&folder, &registry.reference("1"), &["-o", "descriptor"]);
    let alone: Value = serde_json::from_str(&succeeded(&alone)).unwrap();
    assert_eq!(alone, expected);
    let nowhere = from_plain(&folder, &registry.reference("1"), &[]);
    failed(&nowhere, 2, "where does the image run?");
}

#[test]
fn only_the_first_file_counts() {
    let registry = Registry::start(AllowedUsers::Anybody);
    let both = archive(&[
        (".claw-describe.json", &described("Both")),
        (".claw-tools.json", &list()),
    ]);
    let both = registry.blob(GZIP, compressed(&both));
    let removed = registry.blob(PLAIN, archive(&[(".wh..claw-describe.json", "")]));
    let empty = registry.blob(PLAIN, archive(&[(".wh..wh..opq", "")]));
    let folder = tempfile::tempdir().unwrap();
    let spec =
        |tag: &str| object(&succeeded(&new(&folder, &registry.reference(tag))))["spec"].clone();

    registry.image("both", Value::Null, vec![both.clone()]);
    assert_eq!(spec("both")["descriptor"], descriptor("Both"));

    registry.image("tools", Value::Null, vec![both.clone(), removed]);
    let tools = serde_json::from_str::<Value>(&list()).unwrap()["tools"].clone();
    let expected = json!({
        "service": {"name": "fish", "port": 8080},
        "mcp": {"path": "/mcp"},
        "descriptor": {"version": 2, "tools": tools},
    });
    assert_eq!(spec("tools"), expected);

    registry.image("none", json!({}), vec![both.clone(), empty]);
    let none = new(&folder, &registry.reference("none"));
    failed(&none, 1, "the image has neither a label claw.describe");

    registry.image(
        "label",
        json!({"claw.describe": "/no/such.json"}),
        vec![both],
    );
    let label = new(&folder, &registry.reference("label"));
    failed(&label, 1, "the image has no such file");
}

#[test]
fn an_image_for_many_platforms_is_read_for_one_and_pinned_by_its_list() {
    let registry = Registry::start(AllowedUsers::Anybody);
    let one = |architecture: &str| {
        let layer = archive(&[(".claw-describe.json", &described(architecture))]);
        let digest = registry.image(architecture, json!({}), vec![registry.blob(PLAIN, layer)]);
        let size = fs::metadata(registry.stored(&digest)).unwrap().len();
        json!({"mediaType": registry::MANIFEST, "digest": digest, "size": size,
            "platform": {"os": "linux", "architecture": architecture}})
    };
    let list =
        json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [one("arm64"), one("amd64")]});
    let digest = registry.manifest("many", INDEX, &list);
    let folder = tempfile::tempdir().unwrap();
    let reference = registry.reference("many");
    for (flags, description) in [
        (vec![], "amd64"),
        (vec!["--platform", "linux/arm64"], "arm64"),
    ] {
        let flags = [vec!["--service", "fish:8080"], flags].concat();
        let surface = object(&succeeded(&from_plain(&folder, &reference, &flags)));
        assert_eq!(surface["spec"]["descriptor"]["description"], description);
        let named = &surface["metadata"]["annotations"]["toolcrib.dev/image"];
        assert_eq!(*named, format!("{reference}@{digest}"));
    }
    let other = from_plain(
        &folder,
        &reference,
        &["-o", "descriptor", "--platform", "linux/s390x"],
    );
    failed(
        &other,
        1,
        "no image found for linux/s390x, but for linux/arm64, linux/amd64",
    );
}

#[test]
fn changes_of_an_image_are_found_and_taken_over() {
    let registry = Registry::start(AllowedUsers::Anybody);
    let push = |tag: &str, description: &str, path: &str| {
        let mut descriptor = descriptor(description);
        descriptor["tools"][0]["http"]["path"] = path.into();
        let layer = archive(&[(".claw-describe.json", &descriptor.to_string())]);
        registry.image(
            tag,
            json!({"built": tag}),
            vec![registry.blob(PLAIN, layer)],
        )
    };
    push("1", "Fish", "/swim");
    let folder = tempfile::tempdir().unwrap();
    let mut surface = object(&succeeded(&new(&folder, &registry.reference("1"))));
    surface["spec"]["tiers"] = json!({"swim": "System"});
    fs::write(folder.path().join("fish.yaml"), surface.to_string()).unwrap();
    let check = |tag: &str| {
        from_plain(
            &folder,
            &registry.reference(tag),
            &["-f", "fish.yaml", "--check"],
        )
    };
    assert_eq!(text(&check("1").stderr), "");
    assert_eq!(succeeded(&check("1")), "");

    // Another image with the same descriptor.
    push("2", "Fish", "/swim");
    let moved = check("2");
    assert_eq!(succeeded(&moved), "");
    assert!(text(&moved.stderr).starts_with(&format!("image: {}@", registry.reference("2"))));

    let digest = push("3", "Fishes", "/swim/far");
    let changed = check("3");
    failed(
        &changed,
        1,
        "changed: swim: http\nchanged: description: descriptor\nimage: ",
    );
    assert_eq!(text(&changed.stdout), "");
    let updated = object(&succeeded(&from_plain(
        &folder,
        &registry.reference("3"),
        &["-f", "fish.yaml"],
    )));
    surface["spec"]["descriptor"]["description"] = "Fishes".into();
    surface["spec"]["descriptor"]["tools"][0]["http"]["path"] = "/swim/far".into();
    surface["metadata"]["annotations"]["toolcrib.dev/image"] =
        format!("{}@{digest}", registry.reference("3")).into();
    assert_eq!(updated, surface);
}

#[test]
fn the_docker_config_s_credential_is_used_and_not_shown() {
    let registry = Registry::start(AllowedUsers::User);
    let layer = registry.blob(
        PLAIN,
        archive(&[(".claw-describe.json", &described("Fish"))]),
    );
    registry.image("1", json!({}), vec![layer]);
    let folder = tempfile::tempdir().unwrap();
    let ask = |auth: &str| {
        let config = json!({"auths": {&registry.address: {"auth": auth}}});
        fs::write(folder.path().join("docker.json"), config.to_string()).unwrap();
        new(&folder, &registry.reference("1"))
    };
    // The texts decode to otter:fish:bone and otter:frog.
    let output = ask("b3R0ZXI6ZmlzaDpib25l");
    let shown = succeeded(&output) + &text(&output.stderr);
    assert!(
        !shown.contains(USER.1) && !shown.contains("b3R0"),
        "{shown}"
    );
    failed(
        &ask("b3R0ZXI6ZnJvZw=="),
        1,
        "401 Unauthorized: log in with `docker login`",
    );
    fs::write(folder.path().join("docker.json"), "{}").unwrap();
    failed(
        &new(&folder, &registry.reference("1")),
        1,
        "401 Unauthorized: log in with `docker login`",
    );
    fs::write(folder.path().join("docker.json"), "[7]").unwrap();
    failed(
        &new(&folder, &registry.reference("1")),
        2,
        "docker.json is not a docker config: line 1",
    );
}

#[test]
fn bytes_with_another_digest_are_not_read() {
    let registry = Registry::start(AllowedUsers::Anybody);
    let layer = archive(&[(".claw-describe.json", &described("Fish"))]);
    let blob = registry.blob(PLAIN, layer.clone());
    registry.image("1", json!({}), vec![blob.clone()]);
    let forged = String::from_utf8(layer).unwrap().replace("Fish", "Frog");
    fs::write(registry.stored(blob["digest"].as_str().unwrap()), forged).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let output = new(&folder, &registry.reference("1"));
    failed(&output, 1, "layer sha256:");
    assert_eq!(text(&output.stdout), "");
    assert!(
        text(&output.stderr).to_lowercase().contains("digest"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn unreadable_images_are_reported() {
    let registry = Registry::start(AllowedUsers::Anybody);
    let zstd = registry.blob(
        "application/vnd.oci.image.layer.v1.tar+zstd",
        b"zstd".to_vec(),
    );
    registry.image("zstd", json!({}), vec![zstd]);
    let folder = tempfile::tempdir().unwrap();
    let check =
        |reference: &str, code: i32, words: &str| failed(&new(&folder, reference), code, words);
    check(&registry.reference("zstd"), 1, "is compressed with zstd");
    check(
        &registry.reference("none"),
        1,
        "has no image pond/fish none",
    );
    check(
        "registry.test/pond/fish:1",
        2,
        "--plain-http is for registries of this machine",
    );
    check("Pond/FISH", 2, "invalid value 'Pond/FISH'");
    let nobody = "127.0.0.1:1";
    check(
        &format!("{nobody}/pond/fish:1"),
        1,
        "127.0.0.1:1 cannot be asked: connection refused: check that the server runs and listens at this port",
    );
}

/// A server on loopback that is no real registry. It ends with the runtime.
struct Server {
    address: String,
    _runtime: Runtime,
}

impl Server {
    fn start(router: Router) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        runtime.spawn(async move { axum::serve(listener, router).await });
        Self {
            address,
            _runtime: runtime,
        }
    }

    fn reference(&self) -> String {
        format!("{}/pond/fish:1", self.address)
    }
}

#[test]
fn a_registry_without_tls_is_reported_with_the_flag_for_it() {
    let server = Server::start(Router::new());
    let folder = tempfile::tempdir().unwrap();
    let words = format!(
        ": {} cannot be asked: the port does not speak TLS: --plain-http is for a registry on this machine without TLS\n",
        server.address
    );
    let output = from_image(&folder, &server.reference(), SERVICE);
    failed(&output, 1, &words);
}

#[test]
fn a_name_that_does_not_resolve_is_reported_with_the_registry() {
    // No resolver asks a name server for so long a label.
    let unknown = format!("{}.test", "x".repeat(64));
    let check = |output: &Output, server: &str| {
        let cause = format!(
            ": {server} cannot be asked: the name does not resolve: this machine looked up {unknown} ("
        );
        failed(output, 1, &cause);
        let advice = "): check its spelling, and the name servers of this machine\n";
        failed(output, 1, advice);
    };
    let folder = tempfile::tempdir().unwrap();
    let image = format!("{unknown}/pond/fish:1");
    check(&from_image(&folder, &image, SERVICE), &unknown);

    let realm = format!("Bearer realm=\"http://{unknown}/token\",service=\"s\"");
    let names_token_server = (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, realm)]);
    let server = Server::start(Router::new().route("/v2/", get(names_token_server)));
    check(&new(&folder, &server.reference()), &server.address);
}

#[test]
fn a_server_of_blobs_that_cannot_be_reached_is_reported() {
    let digest = format!("sha256:{}", "0".repeat(64));
    let config = json!({"mediaType": CONFIG, "digest": digest, "size": 2});
    let manifest =
        json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": []});
    // A port that no test binds.
    let redirect = Redirect::temporary("http://127.0.0.1:1/blob");
    let redirects_blobs = Router::new()
        .route("/v2/", get(StatusCode::OK))
        .route("/v2/pond/fish/manifests/1", get(manifest.to_string()))
        .route("/v2/pond/fish/blobs/{digest}", get(redirect));
    let server = Server::start(redirects_blobs);
    let folder = tempfile::tempdir().unwrap();
    let words = format!(
        "the image's config: {}, or the server to which it redirects, cannot be asked: connection refused: check that the server runs and listens at this port\n",
        server.address
    );
    failed(&new(&folder, &server.reference()), 1, &words);
}
