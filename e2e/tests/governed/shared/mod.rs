//! Resources that a pod's containers share do not decide where a credential goes, even if one
//! container runs as root.
//!
//! Not here: listening on the shared network (`sniffing.rs`), the content of the runner's own
//! container (`starvation.rs`).

mod attacks;

use std::sync::OnceLock;

use anyhow::{Context, Result, anyhow, ensure};
use rustix::process::{Pid, Signal, kill_process};
use toolcrib_e2e::evidence::Evidence;
use toolcrib_e2e::platform::PollResult;

use crate::support::{Desk, MEDIATOR, SECRETS, START, platform, process_of};

const HERE: &str = "shared";
const TRADE: &str = "Make a trade: buy 3 OTTR";

/// Records every byte that is sent to the ports of the desk and of the model.
const EVIL: &str = r#"
import socketserver
class Keep(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.settimeout(3)
        try:
            with open("/tmp/heard", "ab", buffering=0) as heard:
                while data := self.request.recv(65536):
                    heard.write(data)
                    self.request.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
        except TimeoutError:
            pass
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
import threading
for port in (4000, 8080):
    threading.Thread(target=Server(("", port), Keep).serve_forever).start()
"#;

/// Answers every question on 127.0.0.1:53 with the given address.
const NAME_SERVER: &str = r#"
import socket, sys
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 53))
open("/tmp/ready", "w").close()
while True:
    query, sender = server.recvfrom(4096)
    end = query.index(0, 12) + 5
    record = b"\xc0\x0c" + query[end - 4:end] + b"\0\0\0\x3c\0\x04" + socket.inet_aton(sys.argv[1])
    four = query[end - 4:end - 2] == b"\0\x01"
    head = query[:2] + b"\x81\x80\0\1" + (b"\0\1" if four else b"\0\0") + b"\0\0\0\0"
    server.sendto(head + query[12:end] + (record if four else b""), sender)
"#;

/// Prints the address that this container's C library resolves.
const RESOLVE: &str = r#"
import socket, sys
print(socket.gethostbyname(sys.argv[1]))
"#;

/// Prints one line for each way to reach into another container of the pod.
const REACH: &str = r#"
import fcntl, os, socket, struct, sys
name_server, own = sys.argv[1:]
def way(name, attempt):
    try:
        attempt()
        print(name, "open")
    except OSError:
        print(name, "refused")
def bind(port):
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    server.bind(("127.0.0.1", port))
    server.listen()
def spoof(option):
    forged = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    forged.setsockopt(socket.IPPROTO_IP, option, 1)
    forged.bind((name_server, 53))
    forged.sendto(b"forged", (own, 9))
def conntrack():
    link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)
    link.send(struct.pack("=IHHII4x", 20, 1 << 8 | 2, 5, 1, 0))
    error, = struct.unpack_from("=i", link.recv(4096), 16)
    if error:
        raise OSError(-error, "conntrack")
ioctl = lambda number: fcntl.ioctl(socket.socket(socket.AF_INET, socket.SOCK_DGRAM), number, bytes(160))
way("runner's port", lambda: bind(4141))
way("admin port", lambda: bind(4142))
way("name server's address, free", lambda: spoof(15))
way("name server's address, transparent", lambda: spoof(19))
way("arp", lambda: ioctl(0x8955))
way("routes", lambda: ioctl(0x890B))
way("conntrack", conntrack)
way("sysctl", lambda: open("/proc/sys/net/ipv4/ip_nonlocal_bind", "w").write("1"))
way("hostname", lambda: socket.sethostname("evil"))
way("files", lambda: os.stat("/etc/toolcrib/config"))
way("record", lambda: os.stat("/var/lib/toolcrib"))
way("link", lambda: os.stat("/etc/toolcrib/link"))
programs = [os.readlink(f"/proc/{pid}/exe") for pid in os.listdir("/proc") if pid.isdigit()]
print("processes", [program for program in programs if "toolcrib" in program])
with open("/proc/net/unix") as sockets:
    print("sockets", [line for line in sockets.readlines()[1:] if len(line.split()) > 7])
"#;

#[test]
fn shared_files_redirect_no_credential() -> Result<()> {
    let desk = open()?;
    // The tests share the desk, which is never dropped, so each has its own evidence.
    let evidence = Evidence::of(&desk.platform, &[HERE]);
    let evil = address_of(desk, "evil")?;
    desk.platform.apply(&pod("lured", "executor", 0))?;
    desk.platform.apply(&pod("debugged", "executor", 1000))?;
    desk.platform.wait_ready(HERE, &["lured", "debugged"])?;
    let lines = format!("{evil} trading-api.{HERE}.svc scripted-model.{HERE}.svc");

    // A root runner changes the hosts file, and starts a name server of its own.
    let serve = format!(
        "python3 -c '{NAME_SERVER}' {evil} >/dev/null 2>&1 & until [ -e /tmp/ready ]; do sleep 0.1; done"
    );
    desk.platform.exec(HERE, "lured", &["sh", "-c", &serve])?;
    let write = format!(
        "echo '{lines}' >>/etc/hosts; printf 'nameserver 127.0.0.1\\n' >/etc/resolv.conf
        echo 'hosts: files dns' >/etc/nsswitch.conf; echo 'precedence ::1/128 0' >/etc/gai.conf"
    );
    desk.platform.exec(HERE, "lured", &["sh", "-c", &write])?;

    // A root debug container joins a pod whose runner is not root.
    let custom = tempfile::NamedTempFile::new()?;
    std::fs::write(
        custom.path(),
        r#"{"securityContext": {"runAsNonRoot": false, "runAsUser": 0}}"#,
    )?;
    let custom = custom.path().display().to_string();
    desk.platform.kubectl(&[
        "debug",
        "debugged",
        "--namespace",
        HERE,
        "--image=docker.io/toolcrib/runner-python:dev",
        "--image-pull-policy=IfNotPresent",
        "--profile=restricted",
        "--custom",
        &custom,
        "--",
        "sh",
        "-c",
        &format!("echo '{lines}' >>/etc/hosts"),
    ])?;
    desk.platform
        .eventually("the debug container to write", START, || {
            let hosts = desk
                .platform
                .exec(HERE, "debugged", &["cat", "/etc/hosts"])?;
            Ok(PollResult::when(hosts.contains(&lines), hosts))
        })?;

    // Programs that read the changed files are redirected.
    for (pod, name) in [
        ("lured", format!("trading-api.{HERE}.svc")),
        ("lured", "other.example".to_owned()),
        ("debugged", format!("trading-api.{HERE}.svc")),
    ] {
        let command = ["python3", "-c", RESOLVE, &name];
        let said = desk.platform.exec(HERE, pod, &command)?;
        ensure!(said.trim() == evil, "{pod}: {name} is {said}");
    }
    let bait =
        format!("curl -s --max-time 9 -H 'X-Bait: otter' http://trading-api.{HERE}.svc:4000");
    desk.platform.exec(HERE, "lured", &["sh", "-c", &bait])?;
    ensure!(heard(desk)?.contains("X-Bait: otter"), "the bait");

    for pod in ["lured", "debugged"] {
        let said = desk.ask(pod, TRADE)?;
        ensure!(said.contains("filled"), "{pod}: {said}");
        // The restarted mediator starts with the changed files.
        kill_process(mediator(desk, pod)?, Signal::KILL).context("kill the mediator")?;
        desk.platform
            .eventually("the mediator to be back", START, || {
                let status = status(desk, pod)?;
                let back = status["restartCount"].as_u64() >= Some(1) && status["ready"] == true;
                Ok(PollResult::when(back, status.to_string()))
            })?;
        let said = desk.ask(pod, TRADE)?;
        ensure!(said.contains("filled"), "{pod}, restarted: {said}");
    }
    let heard = heard(desk)?;
    for secret in SECRETS {
        ensure!(!heard.contains(secret), "a credential was sent: {heard}");
    }
    ensure!(
        heard.matches("HTTP/1.1").count() == 1,
        "more than the bait was sent: {heard}"
    );
    evidence.passed()
}

#[test]
fn root_cannot_reach_the_mediator_through_shared_resources() -> Result<()> {
    let desk = open()?;
    // The tests share the desk, which is never dropped, so each has its own evidence.
    let evidence = Evidence::of(&desk.platform, &[HERE]);
    desk.platform.apply(&pod("reaching", "executor", 0))?;
    desk.platform.wait_ready(HERE, &["reaching"])?;
    let service = desk
        .platform
        .get(&["service", "kube-dns", "--namespace", "kube-system"])?;
    let name_server = service["spec"]["clusterIP"]
        .as_str()
        .context("an address")?;
    let own = address_of(desk, "reaching")?;
    let command = ["python3", "-c", REACH, name_server, &own];
    let said = desk.platform.exec(HERE, "reaching", &command)?;
    let expected = "runner's port refused
admin port refused
name server's address, free refused
name server's address, transparent refused
arp refused
routes refused
conntrack refused
sysctl refused
hostname refused
files refused
record refused
link refused
processes []
sockets []
";
    ensure!(said == expected, "{said}");

    // The containers share memory, but not with the mediator.
    let fill = ["sh", "-c", "head -c 1000000 /dev/zero >/dev/shm/full"];
    desk.platform.exec(HERE, "reaching", &fill)?;
    let process = mediator(desk, "reaching")?.as_raw_nonzero();
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps"))?;
    ensure!(maps.contains("toolcrib-sidecar"), "{maps}");
    let mut held = vec![maps];
    for file in std::fs::read_dir(format!("/proc/{process}/fd"))? {
        // Skips a descriptor that was closed meanwhile.
        let Ok(target) = std::fs::read_link(file?.path()) else {
            continue;
        };
        held.push(target.display().to_string());
    }
    for place in ["/dev/shm", "/dev/mqueue", "SYSV"] {
        let found: Vec<_> = held.iter().filter(|it| it.contains(place)).collect();
        ensure!(found.is_empty(), "{place}: {found:?}");
    }
    let said = desk.ask("reaching", TRADE)?;
    ensure!(said.contains("filled"), "{said}");
    evidence.passed()
}

/// A Service selects the agent's own pod. The pod's hostname and subdomain also put a name of this
/// Service into `/etc/hosts`, with the pod's own address. Root listens on that address in the
/// agent's container.
#[test]
fn no_credential_goes_to_the_pods_own_address() -> Result<()> {
    let desk = open()?;
    // The tests share the desk, which is never dropped, so each has its own evidence.
    let evidence = Evidence::of(&desk.platform, &[HERE]);
    desk.platform.apply(&mirror())?;
    desk.platform.wait_ready(HERE, &["mirrored"])?;
    let agent = desk.wait_in_force("mirrored")?;
    ensure!(
        agent["status"]["tools"].to_string().contains("mirror.look"),
        "{agent}"
    );
    let program = EVIL.replace('\'', "\"");
    let listen = format!(
        "python3 -c '{program}' >/dev/null 2>&1 & until curl -s --max-time 1 http://127.0.0.1:4000 >/dev/null; do sleep 0.1; done; rm /tmp/heard"
    );
    desk.platform
        .exec(HERE, "mirrored", &["sh", "-c", &listen])?;
    let own = address_of(desk, "mirrored")?;
    for name in ["mirror", "self.mirror"] {
        let name = format!("{name}.{HERE}.svc");
        let command = ["python3", "-c", RESOLVE, &name];
        // The name server knows the pod a moment after it is ready.
        desk.platform
            .eventually("the name to lead to the pod", START, || {
                let resolve = || desk.platform.exec(HERE, "mirrored", &command);
                let said = resolve().unwrap_or_default();
                Ok(PollResult::when(said.trim() == own, said))
            })?;
    }
    let once = ["python3", "-c", attacks::RUNNER, "once", "mirror__look"];
    let said = desk.platform.exec(HERE, "mirrored", &once)?;
    ensure!(said.trim() != "ok", "{said}");
    let bait = format!("curl -s --max-time 9 -H 'X-Bait: otter' http://mirror.{HERE}.svc:4000");
    desk.platform.exec(HERE, "mirrored", &["sh", "-c", &bait])?;
    let heard = desk
        .platform
        .exec(HERE, "mirrored", &["cat", "/tmp/heard"])?;
    ensure!(
        heard.contains("X-Bait: otter") && heard.matches("HTTP/1.1").count() == 1,
        "more than the bait was sent: {heard}"
    );
    ensure!(!heard.contains("mirrored-2b91"), "{heard}");
    evidence.passed()
}

/// Returns the desk, which is prepared once: applying the example resets the namespace's labels,
/// and the other tests' pods would be refused.
fn open() -> Result<&'static Desk> {
    static DESK: OnceLock<Result<Desk>> = OnceLock::new();
    DESK.get_or_init(prepare)
        .as_ref()
        .map_err(|error| anyhow!("{error:#}"))
}

fn prepare() -> Result<Desk> {
    platform()?.apply(include_str!("providers.yaml"))?;
    let desk = Desk::open(HERE)?;
    // A namespace that allows root runners does not enforce Pod Security.
    desk.platform.kubectl(&[
        "label",
        "namespace",
        HERE,
        "--overwrite",
        "pod-security.kubernetes.io/enforce=privileged",
    ])?;
    desk.platform.apply(&evil())?;
    desk.platform.wait_ready(HERE, &["evil"])?;
    desk.wait_in_force("executor")?;
    Ok(desk)
}

fn status(desk: &Desk, pod: &str) -> Result<serde_json::Value> {
    let pod = desk.platform.get(&["pod", pod, "--namespace", HERE])?;
    let all = pod["status"]["initContainerStatuses"].as_array();
    let ours = all.and_then(|all| all.iter().find(|it| it["name"] == MEDIATOR));
    ours.cloned().context("the mediator's status")
}

fn mediator(desk: &Desk, pod: &str) -> Result<Pid> {
    process_of(&status(desk, pod)?, "toolcrib-sidecar")
}

fn address_of(desk: &Desk, pod: &str) -> Result<String> {
    let pod = desk.platform.get(&["pod", pod, "--namespace", HERE])?;
    let address = pod["status"]["podIP"].as_str();
    Ok(address.context("the pod's address")?.to_owned())
}

fn heard(desk: &Desk) -> Result<String> {
    let read = ["sh", "-c", "cat /tmp/heard 2>/dev/null || true"];
    desk.platform.exec(HERE, "evil", &read)
}

fn evil() -> String {
    let program: String = EVIL.lines().map(|line| format!("\n      {line}")).collect();
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: evil, namespace: {HERE}}}
spec:
  automountServiceAccountToken: false
  containers:
  - name: evil
    image: docker.io/toolcrib/runner-python:dev
    imagePullPolicy: IfNotPresent
    command:
    - python3
    - -c
    - |{program}
    readinessProbe: {{tcpSocket: {{port: 8080}}, periodSeconds: 1}}
"
    )
}

/// Returns the objects of [`no_credential_goes_to_the_pods_own_address`].
fn mirror() -> String {
    let pod = pod("mirrored", "mirrored", 0)
        .replace(
            "toolcrib.dev/agent: mirrored",
            "toolcrib.dev/agent: mirrored, app: mirror",
        )
        .replace("spec:\n", "spec:\n  hostname: self\n  subdomain: mirror\n");
    format!(
        "apiVersion: v1
kind: Service
metadata: {{name: mirror, namespace: {HERE}}}
spec: {{clusterIP: None, selector: {{app: mirror}}, ports: [{{name: http, port: 4000}}]}}
---
apiVersion: v1
kind: Secret
metadata:
  name: mirror
  namespace: {HERE}
  labels: {{toolcrib.dev/credential: \"true\"}}
  annotations: {{toolcrib.dev/hosts: mirror.{HERE}.svc}}
stringData: {{token: mirrored-2b91}}
---
apiVersion: toolcrib.dev/v1alpha1
kind: Surface
metadata: {{name: mirror, namespace: {HERE}}}
spec:
  service: {{name: mirror, port: 4000}}
  auth: {{type: Bearer, secretKeyRef: {{name: mirror, key: token}}}}
  descriptor:
    version: 2
    tools: [{{name: look, inputSchema: {{type: object}}, http: {{method: GET, path: /look}}}}]
---
apiVersion: toolcrib.dev/v1alpha1
kind: Agent
metadata: {{name: mirrored, namespace: {HERE}}}
spec: {{native: true, surfaces: [{{name: mirror}}]}}
---
apiVersion: toolcrib.dev/v1alpha1
kind: ToolGrant
metadata: {{name: mirrored, namespace: {HERE}}}
spec: {{agents: [mirrored], tools: [{{surface: {{name: mirror}}, allow: [look]}}]}}
---
{pod}"
    )
}

fn pod(name: &str, agent: &str, user: u32) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata:
  name: {name}
  namespace: {HERE}
  labels: {{toolcrib.dev/agent: {agent}}}
spec:
  automountServiceAccountToken: false
  containers:
  - name: runner
    image: docker.io/toolcrib/runner-python:dev
    imagePullPolicy: IfNotPresent
    command: [sleep, infinity]
    securityContext: {{runAsUser: {user}}}
    volumeMounts:
    - {{name: program, mountPath: /agent, readOnly: true}}
  volumes:
  - {{name: program, configMap: {{name: agent-program}}}}
"
    )
}
