//! A proxy with a CA of its own, named by a user who may write a ModelProvider, gets no byte of a
//! key whose owner did not name both.
//!
//! From the objects to the socket: compiled files are read and dialled as the mediator does. The
//! provider's host is never dialled; the proxy terminates TLS in its name.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use toolcrib_compile::{
    LastGood, ObjectRef, SecretKeyRef, Settings, compile, load, materialize, names,
};
use toolcrib_sidecar::config::version::{Files, parse};
use toolcrib_sidecar::outbound::resolver::Resolver;
use toolcrib_sidecar::outbound::{LocalNames, Outbound};

const KEY: &str = "sk-never-shown";
const PROXY: &str = "proxy.elsewhere.svc";

const POND: &str = r#"
apiVersion: v1
kind: Secret
metadata:
  name: openai
  namespace: pond
  labels: {toolcrib.dev/credential: "true"}
  annotations: {toolcrib.dev/hosts: "HOSTS", toolcrib.dev/ca: "CAS"}
stringData: {key: sk-never-shown}
---
apiVersion: toolcrib.dev/v1alpha1
kind: ModelProvider
metadata: {name: openai, namespace: pond}
spec:
  endpoints: [{dialect: OpenAI, url: "https://models.test/v1"}]
  apiKeys: [{secretKeyRef: {name: openai, key: key}}]
  proxy: http://proxy.elsewhere.svc:PORT
  tls: {caFrom: {configMapKeyRef: {name: evil, key: ca.crt}}}
---
{apiVersion: toolcrib.dev/v1alpha1, kind: Agent, metadata: {name: otter, namespace: pond}, spec: {}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: evil, namespace: pond}
data: {ca.crt: CA}
"#;

#[tokio::test]
async fn an_intercepting_proxy_gets_a_key_only_if_its_owner_named_proxy_and_ca() {
    for (hosts, cas) in [
        ("models.test", ""),
        ("models.test", "evil/ca.crt"),
        ("models.test, proxy.elsewhere.svc", ""),
        ("models.test, proxy.elsewhere.svc", "evil/other.crt"),
    ] {
        let proxy = Interceptor::start().await;
        assert_eq!(send(&proxy, hosts, cas).await, 0, "{hosts} {cas}");
        assert!(proxy.seen().is_empty(), "{hosts} {cas}");
    }
    // The proxy does read a key that it may have, so the test would see a leak.
    let proxy = Interceptor::start().await;
    let both = send(&proxy, "models.test, proxy.elsewhere.svc", "evil/ca.crt");
    assert_eq!(both.await, 1);
    assert!(proxy.seen().contains(KEY));
}

/// Sends a request with each key of each provider in the agent's files; returns their number.
async fn send(proxy: &Interceptor, hosts: &str, cas: &str) -> usize {
    let text = POND
        .replace("HOSTS", hosts)
        .replace("CAS", cas)
        .replace("PORT", &proxy.address.port().to_string())
        .replace("CA}", &format!("{}}}", serde_json::json!(proxy.ca)));
    let loaded = load([("pond.yaml".to_owned(), text)], Settings::default());
    assert!(loaded.errors.is_empty(), "{:?}", loaded.errors);
    let agent = ObjectRef::new("pond", "otter");
    let compiled = compile(&loaded.inputs, &agent).expect("the agent");
    let value = |reference: &SecretKeyRef| loaded.secrets.get(reference).cloned();
    let mut files = materialize(&compiled, &value, &LastGood::default(), &[]).files;
    let mut file = |name: &str| files.remove(name).expect("the file");
    let files = Files {
        agent: file(names::AGENT_FILE),
        tools: file(names::TOOLS_FILE),
        providers: file(names::PROVIDERS_FILE),
        feeds: file(names::FEEDS_FILE),
    };
    let version = parse(&files, &|_| None).expect("files of this release");

    let outbound = Outbound::new(LocalNames::Allowed, Resolver::of_machine())
        .with_address(PROXY, proxy.address);
    let mut sent = 0;
    for provider in version.providers.values() {
        let ca = provider.tls.as_ref().and_then(|tls| tls.ca.as_deref());
        let client = outbound.client(ca, provider.proxy.as_deref());
        let client = client.expect("a client");
        for key in &provider.keys {
            let request = client
                .post(format!(
                    "{}/chat/completions",
                    provider.endpoints[0].base_url
                ))
                .bearer_auth(key.secret.expose())
                .timeout(Duration::from_secs(20));
            assert!(
                request
                    .send()
                    .await
                    .expect("an answer")
                    .status()
                    .is_success()
            );
            sent += 1;
        }
    }
    sent
}

/// Answers `CONNECT` and terminates TLS itself, as `models.test`.
struct Interceptor {
    address: SocketAddr,
    ca: String,
    seen: Arc<Mutex<String>>,
}

impl Interceptor {
    async fn start() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = params.self_signed(&key).expect("a certificate").pem();
        let issuer = Issuer::new(params, key);
        let key = KeyPair::generate().expect("a key");
        let leaf = CertificateParams::new(vec!["models.test".to_owned()]).expect("a name");
        let leaf = leaf.signed_by(&key, &issuer).expect("a certificate");
        let chain = vec![CertificateDer::from(leaf.der().to_vec())];
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .expect("a server");
        let acceptor = TlsAcceptor::from(Arc::new(tls));

        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("its address");
        let seen = Arc::new(Mutex::new(String::new()));
        let noted = Arc::clone(&seen);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(intercept(stream, acceptor.clone(), Arc::clone(&noted)));
            }
        });
        Self { address, ca, seen }
    }

    fn seen(&self) -> String {
        self.seen.lock().expect("no panic").clone()
    }
}

async fn intercept(mut stream: TcpStream, acceptor: TlsAcceptor, seen: Arc<Mutex<String>>) {
    let connect = head(&mut stream).await;
    seen.lock().expect("no panic").push_str(&connect);
    let answered = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
    answered.expect("the tunnel");
    let mut stream = acceptor.accept(stream).await.expect("TLS");
    let request = head(&mut stream).await;
    seen.lock().expect("no panic").push_str(&request);
    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    stream.write_all(answer).await.expect("an answer");
}

async fn head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("a head"));
    }
    String::from_utf8(head).expect("text")
}
