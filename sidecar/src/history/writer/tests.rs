use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use toolcrib_record::{ChainReport, Head, Verifier};

use super::super::log::FILE_NAME;
use super::*;

#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Sink {
    fn text(&self) -> String {
        without_chain(&String::from_utf8(self.0.lock().clone()).unwrap())
    }
}

/// Removes the line that begins the chain, and the chain's members of each line.
fn without_chain(text: &str) -> String {
    let mut lines = String::new();
    for line in text
        .lines()
        .filter(|line| !line.contains(r#""kind":"start""#))
    {
        let (begin, end) = match line.split_once(r#","chain":"#) {
            Some((begin, rest)) => {
                let prev = rest.split_once(r#""prev":""#).unwrap().1;
                (begin, &prev[65..])
            }
            None => (line, ""),
        };
        lines += &format!("{begin}{end}\n");
    }
    lines
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A stdout that blocks until its gate is dropped.
struct GatedStdout {
    gate: Receiver<()>,
    /// Signals that the first write has begun.
    blocked: SyncSender<()>,
    sink: Sink,
}

impl Write for GatedStdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Err: signalled before, or the test does not listen.
        self.blocked.try_send(()).ok();
        // Err: the gate is open.
        self.gate.recv().ok();
        self.sink.write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the gate, its stdout, the signal of the first write, and the written bytes.
fn gated() -> (SyncSender<()>, GatedStdout, Receiver<()>, Sink) {
    let (open, gate) = sync_channel(1);
    let (blocked, is_blocked) = sync_channel(1);
    let sink = Sink::default();
    let stdout = GatedStdout {
        gate,
        blocked,
        sink: sink.clone(),
    };
    (open, stdout, is_blocked, sink)
}

fn open(dir: &Path, stdout: impl Write + Send + 'static) -> (History, Arc<Metrics>) {
    open_with(dir, 8 * 1024 * 1024, stdout)
}

fn open_bounded(dir: &Path, max_bytes: u64) -> History {
    open_with(dir, max_bytes, io::sink()).0
}

fn open_with(
    dir: &Path,
    max_bytes: u64,
    stdout: impl Write + Send + 'static,
) -> (History, Arc<Metrics>) {
    let metrics = Arc::new(Metrics::default());
    let history = History::open(
        dir,
        max_bytes,
        None,
        PodIdentity {
            name: "otter-0",
            uid: Some("u-7"),
        },
        StdoutBodies::WithoutBodies,
        stdout,
        metrics.clone(),
    );
    (history.unwrap(), metrics)
}

fn turn(text: &str) -> TurnLines<'static> {
    TurnLines {
        without: format!("{{{text}}}").into_bytes(),
        bodies: vec![b",".into(), b"body".into()],
    }
}

fn on_disk(dir: &Path) -> String {
    without_chain(&std::fs::read_to_string(dir.join(FILE_NAME)).unwrap())
}

/// Makes `history.jsonl` a link to a device that is always full.
fn fill_disk(dir: &Path) {
    std::os::unix::fs::symlink("/dev/full", dir.join(FILE_NAME)).unwrap();
}

fn make_room(dir: &Path) {
    std::fs::remove_file(dir.join(FILE_NAME)).unwrap();
}

fn count(metrics: &Metrics, sample: &str) -> u64 {
    let text = metrics.text(&crate::metrics::State::default());
    let line = text.lines().find(|line| line.starts_with(sample));
    line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
}

#[tokio::test]
async fn disk_has_the_bodies_and_stdout_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let sink = Sink::default();
    let (history, _) = open(dir.path(), sink.clone());
    history.intent(b"{intent}".to_vec()).unwrap();
    history.turn(turn("one")).unwrap();
    history.close();
    assert_eq!(on_disk(dir.path()), "{intent}\n{one,body}\n");
    assert_eq!(sink.text(), "{intent}\n{one}\n");
}

#[tokio::test]
async fn a_line_too_long_for_the_file_is_kept_without_its_bodies() {
    let dir = tempfile::tempdir().unwrap();
    let (history, _) = open(dir.path(), Sink::default());
    let mut lines = turn("short");
    lines.bodies.push(vec![b'x'; 5 * 1024 * 1024].into());
    history.turn(lines).unwrap();
    history.close();
    assert_eq!(on_disk(dir.path()), "{short}\n");
}

#[tokio::test]
async fn a_full_disk_refuses_calls_and_lines_of_answers_wait_for_it() {
    let dir = tempfile::tempdir().unwrap();
    fill_disk(dir.path());
    let sink = Sink::default();
    let (history, metrics) = open(dir.path(), sink.clone());
    assert!(history.intent(b"{refused}".to_vec()).is_err());
    history.turn(turn("one")).unwrap();
    history.turn(turn("two")).unwrap();
    assert!(history.waiting() > 10);
    history.ready().unwrap();
    assert!(history.intent(b"{refused}".to_vec()).is_err());
    make_room(dir.path());
    history.intent(b"{fine}".to_vec()).unwrap();
    assert_eq!(history.waiting(), 0);
    history.close();
    assert_eq!(on_disk(dir.path()), "{one}\n{two}\n{fine}\n");
    assert!(sink.text().contains("{one}\n{two}\n"), "{}", sink.text());
    assert_eq!(count(&metrics, "toolcrib_mediator_unrecorded_total"), 0);
}

#[tokio::test]
async fn an_unread_stdout_refuses_calls_and_gets_the_number_of_missed_lines() {
    let dir = tempfile::tempdir().unwrap();
    let (gate, stdout, is_blocked, sink) = gated();
    let (history, metrics) = open(dir.path(), stdout);
    // The writer blocks on one line, so no line leaves the queue while it fills.
    history.intent(b"{x}".to_vec()).unwrap();
    is_blocked.recv().unwrap();
    let mut refused = false;
    for _ in 0..600 {
        refused |= history.intent(b"{x}".to_vec()).is_err();
    }
    assert!(refused);
    history.turn(turn("unheard")).unwrap();
    history.ready().unwrap();
    let missed = r#"toolcrib_mediator_record_missed_total{sink="stdout"}"#;
    assert_eq!(count(&metrics, missed), 1);
    drop(gate);
    // Until stdout is read again.
    while history.intent(b"{again}".to_vec()).is_err() {
        tokio::task::yield_now().await;
    }
    history.close();
    assert!(on_disk(dir.path()).contains("{unheard,body}\n"));
    let heard = sink.text();
    assert!(
        heard.ends_with("{\"kind\":\"gap\",\"lines\":1}\n{again}\n"),
        "{heard}"
    );
}

#[tokio::test]
async fn with_neither_disk_nor_stdout_requests_are_refused_before_a_line_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    fill_disk(dir.path());
    let (gate, stdout, _, _) = gated();
    let (history, metrics) = open(dir.path(), stdout);
    let line = "x".repeat(8 * 1024);
    let mut answered = 0;
    while history.ready().is_ok() {
        history.turn(turn(&line)).unwrap();
        answered += 1;
        assert!(answered < 10_000, "never refused");
    }
    assert!(history.waiting() >= WAITING);
    // Requests that ran already have room.
    for _ in 0..64 {
        history.turn(turn(&line)).unwrap();
    }
    assert_eq!(count(&metrics, "toolcrib_mediator_unrecorded_total"), 0);
    // Beyond every bound a lost line is an error and is counted.
    let mut lost = 0;
    for _ in 0..400 {
        lost += u64::from(history.turn(turn(&line)).is_err());
    }
    assert!(lost > 0);
    assert_eq!(count(&metrics, "toolcrib_mediator_unrecorded_total"), lost);
    make_room(dir.path());
    history.ready().unwrap();
    drop(gate);
    history.close();
    let text = on_disk(dir.path());
    assert!(text.contains("\"kind\":\"gap\""));
    assert!(text.lines().filter(|it| it.contains(&line)).count() >= WAITING / line.len());
}

/// The whole text of a file or of stdout, verified as a source of its own.
fn verify(texts: &[&str]) -> (Vec<ChainReport>, Vec<Head>) {
    let mut verifier = Verifier::default();
    let mut heads = Vec::new();
    for (at, text) in texts.iter().enumerate() {
        verifier.source(&at.to_string());
        for line in text.lines() {
            verifier.push(line.as_bytes()).unwrap();
            if let Ok(Line::Start(start)) = Line::parse(line.as_bytes()) {
                heads.extend(start.previous);
            }
        }
    }
    // The verifier knows these by itself.
    (verifier.finish(&[]).0, heads)
}

#[tokio::test]
async fn each_place_has_a_whole_chain_and_the_next_process_names_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let sink = Sink::default();
    for _ in 0..2 {
        let (history, _) = open(dir.path(), sink.clone());
        history
            .model_call(br#"{"kind":"model_call"}"#.to_vec())
            .unwrap();
        history.intent(br#"{"kind":"intent"}"#.to_vec()).unwrap();
        let turn = TurnLines {
            without: br#"{"kind":"turn"}"#.to_vec(),
            bodies: vec![br#","request":"#.into(), b"[1]".into()],
        };
        history.turn(turn).unwrap();
        history
            .model_call(br#"{"kind":"model_call"}"#.to_vec())
            .unwrap();
        history.close();
    }
    let disk = std::fs::read_to_string(dir.path().join(FILE_NAME)).unwrap();
    let stdout = String::from_utf8(sink.0.lock().clone()).unwrap();
    for (text, absent) in [(&disk, 0), (&stdout, 2)] {
        let (reports, heads) = verify(&[text]);
        assert_eq!((reports.len(), heads.len()), (2, 1), "{text}");
        assert!(reports.iter().all(ChainReport::is_whole), "{reports:?}");
        assert_eq!(heads[0].seq, 2);
        let asides: u64 = reports.iter().map(|it| it.absent_asides).sum();
        assert_eq!(asides, absent + u64::from(absent > 0), "{text}");
    }
    assert!(
        verify(&[&stdout, &disk])
            .0
            .iter()
            .all(ChainReport::is_whole)
    );
}

/// A line that stdout refuses leaves no hole in the chain.
#[tokio::test]
async fn a_refused_intent_has_no_place_in_the_chain() {
    let dir = tempfile::tempdir().unwrap();
    let (gate, stdout, is_blocked, sink) = gated();
    let (history, _) = open(dir.path(), stdout);
    is_blocked.recv().unwrap();
    while history.intent(br#"{"kind":"intent"}"#.to_vec()).is_ok() {}
    history
        .turn(TurnLines {
            without: br#"{"kind":"turn"}"#.to_vec(),
            bodies: Vec::new(),
        })
        .unwrap();
    drop(gate);
    history.close();
    let disk = std::fs::read_to_string(dir.path().join(FILE_NAME)).unwrap();
    let (reports, _) = verify(&[&disk]);
    assert!(reports.iter().all(ChainReport::is_whole), "{reports:?}");
    assert!(sink.0.lock().len() < disk.len());
}

/// A version of the files whose tool has the rule of this digest.
fn rules(digest: &str) -> RuleSet {
    let rule = format!(r#"[{{"digest":"{digest}","grant":{{"name":"g","namespace":"pond"}}}}]"#);
    RuleSet::of_tools("otter", [("desk.buy", &*rule)])
}

/// The digest of each `rules` line, and the kinds of other lines.
fn outline(text: &str) -> Vec<String> {
    let one = |line: &str| match toolcrib_record::Line::parse(line.as_bytes()) {
        Ok(toolcrib_record::Line::Rules(line)) => line.read().unwrap()[0].digest.clone(),
        _ => line[..line.find(',').unwrap_or(line.len()).min(20)].to_owned(),
    };
    text.lines().map(one).collect()
}

#[tokio::test]
async fn rules_are_written_before_the_next_line_and_once() {
    let dir = tempfile::tempdir().unwrap();
    let sink = Sink::default();
    let (history, _) = open(dir.path(), sink.clone());
    history.set_rules(rules("r1:a"));
    history.intent(b"{intent}".to_vec()).unwrap();
    history.set_rules(rules("r1:a"));
    history.turn(turn("one")).unwrap();
    history.set_rules(rules("r1:b"));
    history.turn(turn("two")).unwrap();
    history.close();
    let expected = ["r1:a", "{intent}", "{one", "r1:b", "{two"];
    assert_eq!(outline(&on_disk(dir.path())), expected);
}

#[tokio::test]
async fn each_file_begins_with_the_rules_in_force() {
    let dir = tempfile::tempdir().unwrap();
    let history = open_bounded(dir.path(), 8 * 1024);
    history.set_rules(rules("r1:a"));
    let mut files = 0;
    for number in 0..200 {
        history.turn(turn(&format!("{number:0100}"))).unwrap();
        let text = std::fs::read_to_string(dir.path().join(FILE_NAME)).unwrap();
        if text.lines().count() == 2 {
            files += 1;
            assert_eq!(outline(&text)[0], "r1:a", "{text}");
        }
    }
    assert!(files > 3, "{files}");
    history.close();
    for name in [FILE_NAME, super::super::log::ROTATED_NAME] {
        let length = std::fs::metadata(dir.path().join(name)).unwrap().len();
        assert!(length <= 4 * 1024, "{name}: {length}");
    }
}

#[tokio::test]
async fn the_line_of_a_request_is_written_although_its_rules_cannot_be() {
    let dir = tempfile::tempdir().unwrap();
    let (gate, stdout, is_blocked, sink) = gated();
    let (history, metrics) = open_with(dir.path(), 8 * 1024, stdout);
    is_blocked.recv().unwrap();
    while history.intent(b"{x}".to_vec()).is_ok() {}
    // Longer than a file.
    let long = format!("r1:{}", "a".repeat(8 * 1024));
    history.set_rules(rules(&long));
    assert!(history.intent(b"{refused}".to_vec()).is_err());
    history.turn(turn("ended")).unwrap();
    assert!(on_disk(dir.path()).contains("{ended,body}\n"));
    assert_eq!(count(&metrics, "toolcrib_mediator_unrecorded_total"), 2);
    drop(gate);
    // The rules are due until stdout takes them.
    while history.intent(b"{again}".to_vec()).is_err() {
        tokio::task::yield_now().await;
    }
    history.close();
    assert!(sink.text().contains(&long));
}
