//! Collectors that are down, slow or refusing, and exports that are killed.

use std::collections::BTreeSet;

use super::rig::Rig;
use crate::support::collector::{Verdict, body};
use crate::support::until;

const RECORD: u64 = 8 * 1024 * 1024;
const SENT: &str = r#"exported_lines_total{outcome="sent"}"#;
const REJECTED: &str = r#"exported_lines_total{outcome="rejected"}"#;
const LOST: &str = r#"exported_lines_total{outcome="lost"}"#;

fn assert_whole(rig: &Rig, chains: usize) {
    let verified = rig.verified();
    assert_eq!(verified.len(), chains, "{verified:?}");
    assert!(verified.values().all(Vec::is_empty), "{verified:?}");
}

#[tokio::test]
async fn each_line_arrives_once_and_its_hash_can_be_proved() {
    let mut rig = Rig::start(RECORD, None).await;
    for _ in 0..1200 {
        rig.line(100);
    }
    rig.flushed().await;
    rig.restart().await;
    rig.line(100);
    rig.flushed().await;
    let places = rig.places();
    let different: BTreeSet<_> = places.iter().collect();
    assert_eq!((places.len(), different.len()), (1203, 1203));
    assert_whole(&rig, 2);
    assert_eq!((rig.count(SENT), rig.count(LOST)), (1203, 0));
    assert_eq!(rig.count("export_lag_bytes"), 0);
    for record in rig.collector.records() {
        let text = body(&record);
        assert!(!text.contains("a prompt") && !text.contains("an answer"));
    }
}

#[tokio::test]
async fn a_collector_that_was_down_gets_the_lines_of_that_time() {
    let mut rig = Rig::start(RECORD, None).await;
    rig.line(10);
    rig.flushed().await;
    rig.collector.stop().await;
    for _ in 0..50 {
        rig.line(10);
    }
    until("a lag", || {
        (rig.count("export_lag_bytes") > 0).then_some(())
    })
    .await;
    rig.collector.restart().await;
    rig.flushed().await;
    assert_eq!(rig.places().len(), 52);
    assert_whole(&rig, 1);
}

#[tokio::test]
async fn a_refusal_is_final_only_if_it_judges_the_lines() {
    for (status, taken) in [
        (429, 11),
        (503, 11),
        (404, 11),
        (500, 11),
        (400, 1),
        (422, 1),
    ] {
        let rig = Rig::start(RECORD, None).await;
        rig.flushed().await;
        rig.collector.usually(Verdict::Status(status));
        let before = rig.collector.requests();
        for _ in 0..10 {
            rig.line(10);
        }
        rig.collector.asked(before + 1).await;
        if taken == 1 {
            rig.counts(REJECTED, 10).await;
        }
        rig.collector.usually(Verdict::Take);
        rig.flushed().await;
        assert_eq!(rig.places().len(), taken, "{status}");
        assert_eq!(rig.count(SENT), taken as u64, "{status}");
        assert_eq!(rig.count(REJECTED), 11 - taken as u64, "{status}");
    }
}

#[tokio::test]
async fn a_message_that_is_too_large_is_sent_in_halves() {
    let rig = Rig::start(RECORD, None).await;
    rig.flushed().await;
    for _ in 0..3 {
        rig.collector.then(Verdict::Status(413));
    }
    for _ in 0..16 {
        rig.line(10);
    }
    rig.flushed().await;
    assert_eq!((rig.places().len(), rig.count(REJECTED)), (17, 0));
    assert_whole(&rig, 1);
}

#[tokio::test]
async fn a_partial_success_counts_as_taken_and_as_rejected() {
    let rig = Rig::start(RECORD, None).await;
    rig.flushed().await;
    for _ in 0..10 {
        rig.line(10);
    }
    let before = rig.collector.requests();
    rig.collector.then(Verdict::TakeWithout(1));
    rig.collector.asked(before + 1).await;
    rig.flushed().await;
    assert_eq!((rig.count(SENT), rig.count(REJECTED)), (10, 1));
}

/// A request that is not answered in time is repeated: at least once, not exactly once.
#[tokio::test]
async fn a_slow_collector_gets_lines_again() {
    let rig = Rig::start(RECORD, None).await;
    rig.flushed().await;
    rig.collector.then(Verdict::Hang);
    rig.collector.then(Verdict::TakeAndHang);
    rig.line(10);
    rig.flushed().await;
    assert_eq!(rig.places().len(), 3, "{:?}", rig.places());
    assert_whole(&rig, 1);
}

/// The status of the answer decides, and no more of its body is read than the bound.
#[tokio::test]
async fn an_endless_answer_is_cut_off_and_its_lines_are_settled() {
    let rig = Rig::start(RECORD, None).await;
    rig.flushed().await;
    rig.collector.then(Verdict::TakeEndlessly);
    rig.line(10);
    rig.flushed().await;
    assert_eq!(rig.places().len(), 2, "{:?}", rig.places());
    assert_whole(&rig, 1);
}

/// A kill between the collector's answer and the cursor, or at any other moment, loses nothing.
#[tokio::test]
async fn a_killed_export_loses_no_line() {
    let mut rig = Rig::start(RECORD, None).await;
    for round in 0..40_u64 {
        for _ in 0..5 {
            rig.line(100);
        }
        match round % 4 {
            0 => rig.collector.then(Verdict::TakeAndHang),
            1 => rig.collector.then(Verdict::Status(503)),
            _ => {}
        }
        // Another moment each time.
        for _ in 0..(round % 7) * 40 {
            tokio::task::yield_now().await;
        }
        rig.restart().await;
    }
    rig.flushed().await;
    assert_whole(&rig, 41);
    let different: BTreeSet<_> = rig.places().into_iter().collect();
    assert_eq!(different.len(), 41 + 40 * 5);
    assert_eq!(rig.count(LOST), 0);
}

/// A torn cursor, or one of another record, sends the record again and loses nothing.
#[tokio::test]
async fn an_unusable_cursor_sends_the_record_again() {
    for cursor in [
        "",
        "{\"file\":{\"ino",
        r#"{"file":{"inode":1,"first_line":"00"},"offset":7}"#,
    ] {
        let mut rig = Rig::start(RECORD, None).await;
        rig.line(10);
        rig.flushed().await;
        rig.kill_export().await;
        std::fs::write(rig.dir.path().join("exported.json"), cursor).unwrap();
        rig.restart().await;
        rig.flushed().await;
        assert_eq!(rig.places().len(), 2 + 3, "{cursor}");
        assert_whole(&rig, 2);
    }
}
