//! What the verifier says of each way to tamper with a record.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use toolcrib_record::{Chain, ChainReport, Digest, Finding, Head, SourceReport, Verifier};

/// A chain of `last + 1` lines whose third has a line aside before it, and its last head.
fn chain(id: &str, last: u64) -> (Vec<String>, Head) {
    let mut chain = Chain::new(id.into());
    let mut lines = Vec::new();
    let mut hash = Digest::NONE;
    for seq in 0..=last {
        if seq == 2 {
            let mut aside = br#"{"kind":"model_call"}"#.to_vec();
            let sealed = chain.seal_aside(&mut aside);
            chain.advance_aside(sealed);
            lines.push(String::from_utf8(aside).unwrap());
        }
        let mut line = match seq {
            0 => format!(r#"{{"kind":"start","version":1,"pod":"pod-{id}","timestamp":"t"}}"#),
            seq => format!(r#"{{"kind":"turn","request_id":"r{seq}"}}"#),
        }
        .into_bytes();
        hash = chain.seal(&mut line);
        chain.advance(hash);
        lines.push(String::from_utf8(line).unwrap());
    }
    let head = Head {
        chain: id.into(),
        seq: last,
        hash,
        aside: None,
    };
    (lines, head)
}

fn verify(sources: &[&[String]], heads: &[Head]) -> (Vec<ChainReport>, Vec<SourceReport>) {
    let mut verifier = Verifier::default();
    for (at, lines) in sources.iter().enumerate() {
        verifier.source(&format!("file-{at}"));
        for line in *lines {
            verifier.push(line.as_bytes()).unwrap();
        }
    }
    verifier.finish(heads)
}

#[track_caller]
fn check(sources: &[&[String]], heads: &[Head], expected: &[Finding]) {
    let (reports, _) = verify(sources, heads);
    let findings: Vec<Finding> = reports.into_iter().flat_map(|it| it.findings).collect();
    assert_eq!(findings, expected);
}

/// The lines of a chain of six: seq 0, 1, aside, 2, 3, 4, 5.
fn six() -> (Vec<String>, Head) {
    chain("a", 5)
}

#[test]
fn an_untouched_record_is_whole() {
    let (lines, head) = six();
    check(&[&lines], &[], &[]);
    check(&[&lines], &[head], &[]);
}

#[test]
fn a_changed_line_is_found() {
    let (mut lines, head) = six();
    lines[4] = lines[4].replace("r3", "r9");
    check(&[&lines], &[], &[Finding::Changed(3)]);
    // The last line is known by a head alone.
    let (mut lines, _) = six();
    lines[6] = lines[6].replace("r5", "r9");
    check(&[&lines], &[], &[]);
    check(&[&lines], &[head], &[Finding::Changed(5)]);
}

#[test]
fn a_removed_line_is_missing_unless_another_source_has_it() {
    let (lines, _) = six();
    let mut cut = lines.clone();
    cut.drain(4..6);
    check(&[&cut], &[], &[Finding::Missing { from: 3, to: 4 }]);
    check(&[&cut, &lines], &[], &[]);
    check(&[&lines, &cut], &[], &[]);
}

#[test]
fn swapped_lines_are_out_of_order() {
    let (mut lines, _) = six();
    lines.swap(4, 5);
    let (reports, sources) = verify(&[&lines], &[]);
    assert!(reports[0].is_whole());
    assert_eq!(sources[0].out_of_order, [6]);
}

#[test]
fn inserted_lines_are_found() {
    let (mut lines, _) = six();
    let turn = r#"{"kind":"gap","lines":1}"#.to_string();
    lines.insert(3, turn);
    lines.insert(3, r#"{"kind":"intent","request_id":"r","agent_id":"a","pod":"p","timestamp":"t","round":1,"name":"n","arguments":{},"service":"s","tier":"System","read_only":false}"#.into());
    let (reports, sources) = verify(&[&lines], &[]);
    assert!(reports[0].is_whole());
    assert_eq!(
        (sources[0].unchained, sources[0].first_unchained),
        (1, Some(4))
    );
    // With a place in the chain that another line has.
    let (mut lines, _) = six();
    let forged = lines[4].replace("r3", "r9");
    lines.insert(4, forged);
    let source = "file-0".to_string();
    check(&[&lines], &[], &[Finding::ChangedIn { seq: 3, source }]);
}

#[test]
fn a_member_after_the_hash_takes_a_line_out_of_the_chain() {
    let (mut lines, _) = six();
    lines[4] = lines[4].replace(r#""}"#, r#"","http_status":200}"#);
    check(&[&lines], &[], &[Finding::Missing { from: 3, to: 3 }]);
}

#[test]
fn a_cut_tail_is_found_with_a_head_only() {
    let (mut lines, head) = six();
    lines.truncate(5);
    check(&[&lines], &[], &[]);
    check(
        &[&lines],
        std::slice::from_ref(&head),
        &[Finding::TailCut { last: 3, head: 5 }],
    );
    // A cut after the head that was kept is not seen.
    let (mut longer, _) = chain("a", 9);
    longer.truncate(8);
    check(&[&longer], &[head], &[]);
}

/// The first line of the process after one whose last line was `head`.
fn start_after(head: &Head) -> String {
    let mut chain = Chain::new("next".into());
    let previous = serde_json::to_string(head).unwrap();
    let mut line = format!(
        r#"{{"kind":"start","version":1,"pod":"p","timestamp":"t","previous":{previous}}}"#
    )
    .into_bytes();
    let sealed = chain.seal(&mut line);
    chain.advance(sealed);
    String::from_utf8(line).unwrap()
}

#[test]
fn the_next_process_names_the_end_of_the_chain_before() {
    let (mut lines, head) = six();
    let next = [start_after(&head)];
    check(&[&lines, &next], &[], &[]);
    lines.truncate(5);
    let cut = Finding::TailCut { last: 3, head: 5 };
    check(&[&lines, &next], &[], &[cut]);
    // The files of the earlier process were rotated away.
    check(&[&next], &[], &[]);
}

#[test]
fn a_replaced_file_is_found_with_a_head_only() {
    let (_, head) = six();
    let (other, _) = chain("b", 3);
    check(&[&other], &[], &[]);
    check(&[&other], &[head], &[Finding::Absent]);
}

#[test]
fn files_of_two_pods_are_told_apart() {
    let (mut lines, _) = six();
    let (other, _) = chain("b", 3);
    lines.extend(other);
    let (reports, _) = verify(&[&lines], &[]);
    let pods: Vec<_> = reports.iter().map(|it| it.pod.as_deref()).collect();
    assert_eq!(pods, [Some("pod-a"), Some("pod-b")]);
    assert!(reports.iter().all(ChainReport::is_whole));
}

/// A writer of the store can make all later lines fit to a changed one; only a line that is known
/// from elsewhere shows it.
#[test]
fn a_chain_rewritten_from_the_middle_is_found_where_another_line_names_it() {
    let (lines, head) = six();
    let (mut forged, _) = chain("a", 2);
    let mut writer = Chain::new("a".into());
    for line in lines
        .iter()
        .filter(|line| !line.contains("model_call"))
        .take(3)
    {
        let link = toolcrib_record::short_form(line.as_bytes()).unwrap();
        writer.advance(link.digest);
    }
    for seq in 3..=5 {
        let mut line = format!(r#"{{"kind":"turn","request_id":"forged{seq}"}}"#).into_bytes();
        let sealed = writer.seal(&mut line);
        writer.advance(sealed);
        forged.push(String::from_utf8(line).unwrap());
    }
    check(&[&forged], &[], &[]);
    check(&[&forged], &[head], &[Finding::Changed(5)]);
    // Another source has the lines as they were. Its last one and the forged last one cannot be
    // told apart without a head; that they differ is said.
    let (reports, _) = verify(&[&forged, &lines], &[]);
    assert!(!reports[0].is_whole());
}

#[test]
fn a_rotated_record_begins_later() {
    let (mut lines, _) = six();
    lines.drain(..2);
    check(&[&lines], &[], &[Finding::BeginsAt(2)]);
}

#[test]
fn the_next_line_reveals_changed_model_call_lines() {
    let (lines, _) = six();
    let mut changed = lines.clone();
    changed[2] = changed[2].replace("model_call\"", "model_call\",\"x\":1");
    check(&[&changed], &[], &[Finding::ChangedAside(1)]);
    // Standard output has none of them.
    let mut none = lines;
    none.remove(2);
    let (reports, _) = verify(&[&none], &[]);
    assert!(reports[0].is_whole());
    assert_eq!(reports[0].absent_asides, 1);
}
