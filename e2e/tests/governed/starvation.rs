//! A shell in the runner's container finds no credential.

use anyhow::{Result, ensure};

use crate::support::{Desk, SECRETS};

#[test]
fn the_runners_container_holds_no_credential() -> Result<()> {
    let desk = Desk::open("starved")?;
    // Makes a governed call first, so the credential is in use beside the runner.
    desk.ask("executor", "Make a trade: buy 3 OTTR")?;

    // Searches files (all but the kernel's), environments and command lines: every byte that the
    // container's user can read.
    let program = r#"
import os, sys
secrets = [s.encode() for s in sys.argv[1:]]
found, read = [], 0
def look(path):
    global read
    try:
        with open(path, "rb") as file:
            data = file.read(64 << 20)
    except OSError:
        return
    read += 1
    for secret in secrets:
        # The search itself has them in its own command line.
        if secret in data and path not in (f"/proc/{os.getpid()}/cmdline", "/proc/self/cmdline", "/proc/thread-self/cmdline"):
            found.append(path)
for pid in filter(str.isdigit, os.listdir("/proc")):
    for name in ("environ", "cmdline"):
        look(f"/proc/{pid}/{name}")
for folder, folders, files in os.walk("/"):
    if folder == "/":
        folders[:] = [name for name in folders if name not in ("proc", "sys", "dev")]
    for name in files:
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            look(path)
print("read", read)
print("found", sorted(set(found)))
"#;
    let mut command = vec!["python3", "-c", program];
    command.extend(SECRETS);
    let said = desk.platform.exec(&desk.namespace, "executor", &command)?;
    ensure!(said.contains("found []"), "{said}");
    let read: u32 = said
        .lines()
        .find_map(|line| line.strip_prefix("read "))
        .and_then(|count| count.parse().ok())
        .unwrap_or(0);
    ensure!(read > 100, "the search looked at {read} files only");

    // Bypassing the mediator gives 401.
    let status = desk.platform.exec(
        &desk.namespace,
        "executor",
        &[
            "sh",
            "-c",
            "curl -s -o /dev/null -w '%{http_code}' --max-time 10 -H \"Authorization: Bearer $OPENAI_API_KEY\" http://trading-api:4000/api/v1/market_context/executor",
        ],
    )?;
    assert_eq!(status, "401");
    desk.passed()
}
