//! The two properties of the link, on the types that serve requests. Whatever the link answers,
//! the effective tools are among the loaded ones. Once an answer is in force (which is when it is
//! acknowledged), nothing that it leaves out is dispatched, shown or requested, whatever is
//! loaded, late, repeated or lost.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::{Index, subsequence};
use serde_json::{Value, json};
use tokio::time::Instant;
use toolcrib_dialect::{Dialect, Reply, Request};
use toolcrib_manifest::{AgentPresence, LinkAllowlist, LinkDown, Policy, Streaming, ToolsFile};
use toolcrib_mediation::{
    Authority, BudgetCounts, Catalog, ClawId, Effect, Event, HistoryEdits, ManagedCall, NameOwner,
    PresentedTools, RateCounts, Turn, TurnConfig,
};
use toolcrib_sidecar::config::version::{Files, parse};
use toolcrib_sidecar::config::{CurrentConfig, EffectiveConfig, Observation};
use toolcrib_sidecar::outbound::model::policy::candidates;

/// Each tool has two revisions.
const TOOLS: [&str; 3] = ["quote", "order", "cancel"];
const FEEDS: [&str; 2] = ["tide", "wind"];
const PROVIDERS: [&str; 2] = ["house", "reef"];
const MODELS: [&str; 3] = ["house/otter-1", "house/owl-2", "reef/trout-3"];

/// The granted things: tools with their revision, and others.
#[derive(Clone, Debug)]
struct GrantedItems {
    tools: Vec<(usize, u8)>,
    feeds: Vec<&'static str>,
    providers: Vec<&'static str>,
    /// `None`: any model.
    models: Option<Vec<&'static str>>,
}

#[derive(Clone, Debug)]
enum Step {
    Load(GrantedItems),
    Vanish,
    Answer(Option<GrantedItems>),
    /// Repeats one of the earlier answers.
    Again(Index),
    /// Waits too briefly for an older answer to be accepted.
    Wait,
}

fn given() -> impl Strategy<Value = GrantedItems> {
    (
        proptest::collection::vec(0..3u8, TOOLS.len()),
        subsequence(FEEDS.to_vec(), 0..=FEEDS.len()),
        subsequence(PROVIDERS.to_vec(), 0..=PROVIDERS.len()),
        proptest::option::of(subsequence(MODELS.to_vec(), 0..=MODELS.len())),
    )
        .prop_map(|(revisions, feeds, providers, models)| GrantedItems {
            // Revision 0: the tool is absent.
            tools: revisions
                .into_iter()
                .enumerate()
                .filter(|(_, revision)| *revision > 0)
                .collect(),
            feeds,
            providers,
            models,
        })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => given().prop_map(Step::Load),
        1 => Just(Step::Vanish),
        4 => given().prop_map(Some).prop_map(Step::Answer),
        1 => Just(Step::Answer(None)),
        2 => any::<Index>().prop_map(Step::Again),
        1 => Just(Step::Wait),
    ]
}

fn tool(name: &str, revision: u8) -> Value {
    json!({
        "name": format!("desk.{name}"), "inputSchema": {"type": "object"},
        "execution": {"transport": "http", "service": "desk", "base_url": "http://desk.test",
            "method": "GET", "path": "/"},
        "x-toolcrib": {"tier": "ReadOnly", "entry_digest": digest(revision)},
    })
}

fn digest(revision: u8) -> String {
    format!("v1:{revision}")
}

impl GrantedItems {
    fn loaded(&self) -> Observation {
        let bytes = |value: Value| value.to_string().into_bytes();
        let tools = self
            .tools
            .iter()
            .map(|(at, revision)| tool(TOOLS[*at], *revision));
        let feed = |name: &&str| json!({"name": name, "source": "desk", "path": "/", "url": format!("http://desk.test/{name}")});
        let providers: serde_json::Map<String, Value> = self
            .providers
            .iter()
            .map(|name| {
                let endpoint =
                    json!({"dialect": "openai", "base_url": format!("http://{name}.test")});
                (
                    (*name).to_string(),
                    json!({"endpoints": [endpoint], "auth": "none"}),
                )
            })
            .collect();
        let models = self
            .models
            .as_ref()
            .map(|allowed| json!({"allowed": allowed}));
        let files = Files {
            agent: bytes(json!({"version": 1, "agent": "otter", "namespace": "pond",
                "claw_id": "otter", "tokens": [], "models": models})),
            tools: bytes(json!({"version": 1, "tools": tools.collect::<Vec<_>>()})),
            providers: bytes(json!({"version": 1, "providers": providers})),
            feeds: bytes(self.feeds.iter().map(feed).collect()),
        };
        Observation::Loaded(Box::new(parse(&files, &|_| None).unwrap()))
    }

    fn answer(given: Option<&GrantedItems>, seq: u64) -> LinkDown {
        LinkDown {
            budgets: Vec::new(),
            decisions: Vec::new(),
            rates: Vec::new(),
            seq,
            want: None,
            allowlist: given.map(|given| LinkAllowlist {
                rules: std::collections::BTreeMap::new(),
                tools: given
                    .tools
                    .iter()
                    .map(|(at, revision)| (format!("desk.{}", TOOLS[*at]), digest(*revision)))
                    .collect(),
                feeds: given
                    .feeds
                    .iter()
                    .map(|name| format!("desk/{name}"))
                    .collect(),
                providers: given.providers.iter().map(ToString::to_string).collect(),
                models: given
                    .models
                    .as_ref()
                    .map(|models| models.iter().map(ToString::to_string).collect()),
                models_matching: Vec::new(),
            }),
            agent: match given {
                Some(_) => AgentPresence::Present,
                None => AgentPresence::Deleted,
            },
        }
    }
}

fn request() -> Request {
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
    Request::decode(Dialect::OpenaiChat, body.to_string().into_bytes()).unwrap()
}

/// One call of each revision of each tool, as in a turn that was shown it.
static CALLS: LazyLock<Vec<ManagedCall>> = LazyLock::new(|| {
    let of = |revision: u8| {
        let tools: Vec<Value> = TOOLS.iter().map(|name| tool(name, revision)).collect();
        let file = json!({"version": 1, "tools": tools});
        let file: ToolsFile = serde_json::from_value(file).unwrap();
        let catalog = Catalog::load(&file, toolcrib_manifest::Tier::Elevated);
        let authority = Authority::new(Arc::new(catalog), None);
        let (mut turn, _) = Turn::start(TurnConfig {
            presented: PresentedTools::new(&authority, &request(), jiff::Timestamp::UNIX_EPOCH),
            request: Arc::new(request()),
            policy: Policy::default(),
            streaming: Streaming::Buffered,
            claw_id: ClawId {
                name: "otter".into(),
                namespace: "pond".into(),
            },
            history: HistoryEdits::default(),
            prompt: None,
            context: None,
        })
        .unwrap();
        let call = |(at, name): (usize, &&str)| {
            json!({"id": format!("c{at}"), "type": "function",
                "function": {"name": format!("desk__{name}"), "arguments": "{}"}})
        };
        let calls: Vec<Value> = TOOLS.iter().enumerate().map(call).collect();
        let body = json!({"id": "r", "object": "chat.completion", "model": "m", "choices": [{
            "index": 0, "finish_reason": "tool_calls",
            "message": {"role": "assistant", "content": null, "tool_calls": calls}}]});
        let reply = Reply::decode(Dialect::OpenaiChat, body.to_string().into_bytes()).unwrap();
        // One at a time, since these tools do not allow parallel calls.
        let mut found = Vec::new();
        let mut effects = turn.step(Duration::ZERO, Event::Replied(reply));
        while let Some(Effect::CallTools(group)) = effects.pop() {
            for call in group {
                effects = turn.step(
                    Duration::ZERO,
                    Event::ToolFinished {
                        call: call.id(),
                        outcome: toolcrib_mediation::Denial::Withdrawn {
                            tool: String::new(),
                        }
                        .into(),
                        display: None,
                        allowed_by: None,
                        latency: Duration::ZERO,
                        max_result_bytes: u64::MAX,
                    },
                );
                found.push(call);
            }
        }
        assert_eq!(found.len(), TOOLS.len());
        found
    };
    [1, 2].into_iter().flat_map(of).collect()
});

/// Everything that is allowed now, as texts.
fn effective(now: &EffectiveConfig) -> BTreeSet<String> {
    let mut may = BTreeSet::new();
    for call in CALLS.iter() {
        if now
            .authority
            .permits(
                call,
                &RateCounts::default(),
                &BudgetCounts::default(),
                jiff::Timestamp::UNIX_EPOCH,
            )
            .is_ok()
        {
            may.insert(format!("call {} {}", call.name(), call.digest()));
        }
    }
    let presented = PresentedTools::new(&now.authority, &request(), jiff::Timestamp::UNIX_EPOCH);
    for name in TOOLS {
        if let NameOwner::Managed(tool) = presented.resolve(&format!("desk__{name}")) {
            may.insert(format!(
                "offer {} {}",
                tool.name(),
                tool.catalog_tool().digest
            ));
        }
    }
    may.extend(now.feeds().map(|feed| format!("feed desk/{}", feed.name)));
    if let Ok(version) = now.version() {
        for model in MODELS {
            let found = candidates(now, version, Dialect::OpenaiChat, Some(model));
            for candidate in found.into_iter().flatten() {
                may.insert(format!("model {}", candidate.reference()));
            }
        }
    }
    may
}

/// Everything that an answer allows, in the same texts.
fn left(answer: &LinkDown) -> impl Fn(&String) -> bool {
    let allowlist = answer.allowlist.clone().unwrap_or(LinkAllowlist {
        rules: std::collections::BTreeMap::new(),
        tools: Default::default(),
        feeds: Vec::new(),
        providers: Vec::new(),
        models: None,
        models_matching: Vec::new(),
    });
    move |word| {
        let parts: Vec<&str> = word.split(' ').collect();
        match parts[..] {
            ["call" | "offer", name, digest] => {
                allowlist.tools.get(name).is_some_and(|left| left == digest)
            }
            ["feed", name] => allowlist.feeds.iter().any(|left| left == name),
            ["model", reference] => {
                let provider = reference.split('/').next().unwrap();
                allowlist.providers.iter().any(|left| left == provider)
                    && allowlist
                        .models
                        .as_ref()
                        .is_none_or(|models| models.iter().any(|left| left == reference))
            }
            _ => panic!("{word}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn the_link_only_restricts_what_the_volume_grants(steps in proptest::collection::vec(step(), 1..24)) {
        let linked = CurrentConfig::default();
        // The same volume without a link.
        let alone = CurrentConfig::default();
        let mut answers: Vec<LinkDown> = Vec::new();
        let mut at = Instant::now();
        for step in steps {
            match step {
                Step::Load(given) => {
                    linked.observe(given.loaded(), "now".into());
                    alone.observe(given.loaded(), "now".into());
                }
                Step::Vanish => {
                    linked.observe(Observation::Absent, "now".into());
                    alone.observe(Observation::Absent, "now".into());
                }
                Step::Answer(given) => {
                    let answer = GrantedItems::answer(given.as_ref(), 100 + answers.len() as u64);
                    prop_assert_eq!(linked.accept(answer.clone(), at), Ok(()));
                    prop_assert_eq!(linked.now().seen, answer.seq);
                    answers.push(answer);
                }
                Step::Again(which) if !answers.is_empty() => {
                    let answer = which.get(&answers).clone();
                    let seen = linked.now().seen;
                    let taken = linked.accept(answer.clone(), at).is_ok();
                    prop_assert_eq!(taken, answer.seq >= seen, "only the latest, again");
                    prop_assert_eq!(linked.now().seen, seen);
                }
                Step::Again(_) => {}
                Step::Wait => at += Duration::from_secs(1),
            }
            let may = effective(&linked.now());
            let loaded = effective(&alone.now());
            prop_assert!(may.is_subset(&loaded), "{:?} was never loaded", may.difference(&loaded));
            if let Some(last) = answers.last() {
                // Neither more nor less than the answer allows.
                let expected: BTreeSet<String> = loaded.into_iter().filter(left(last)).collect();
                prop_assert_eq!(may, expected, "under {:?}", last);
            }
        }
    }
}

/// An operator whose lease was created again may restart its numbers.
#[test]
fn restarted_sequence_numbers_are_accepted_after_a_while() {
    let current = CurrentConfig::default();
    let at = Instant::now();
    let answer = |seq| GrantedItems::answer(None, seq);
    let later = |seconds| at + Duration::from_secs(seconds);
    assert_eq!(current.accept(answer(100), at), Ok(()));
    assert!(current.accept(answer(7), later(29)).is_err());
    assert_eq!(current.now().seen, 100);
    assert_eq!(current.accept(answer(7), later(30)), Ok(()));
    assert_eq!(current.now().seen, 7);
}
