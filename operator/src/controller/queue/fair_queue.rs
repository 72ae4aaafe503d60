//! A fair queue: lanes take turns, and each key is queued at most once.

use std::collections::{BTreeMap, HashMap, VecDeque};

/// A key and the lane that it is queued in.
pub trait InLane: Clone + Ord {
    fn lane(&self) -> &str;
}

#[derive(Debug)]
pub struct FairQueue<K> {
    /// Lanes with a queued key, in the order of their turns.
    turns: VecDeque<String>,
    /// The keys of each lane, by the number of their arrival.
    lanes: HashMap<String, BTreeMap<u64, K>>,
    waiting: BTreeMap<K, u64>,
    arrivals: u64,
}

impl<K> Default for FairQueue<K> {
    fn default() -> Self {
        Self {
            turns: VecDeque::new(),
            lanes: HashMap::new(),
            waiting: BTreeMap::new(),
            arrivals: 0,
        }
    }
}

impl<K: InLane> FairQueue<K> {
    pub fn add(&mut self, key: K) {
        if self.contains(&key) {
            return;
        }
        self.arrivals += 1;
        self.waiting.insert(key.clone(), self.arrivals);
        let lane = self.lanes.entry(key.lane().to_owned()).or_default();
        if lane.is_empty() {
            self.turns.push_back(key.lane().to_owned());
        }
        lane.insert(self.arrivals, key);
    }

    /// Removes a key from the queue.
    pub fn remove(&mut self, key: &K) {
        let Some(arrival) = self.waiting.remove(key) else {
            return;
        };
        if let Some(lane) = self.lanes.get_mut(key.lane()) {
            lane.remove(&arrival);
            if lane.is_empty() {
                self.lanes.remove(key.lane());
                self.turns.retain(|lane| lane != key.lane());
            }
        }
    }

    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn contains(&self, key: &K) -> bool {
        self.waiting.contains_key(key)
    }

    /// Takes the oldest key of the lane whose turn it is.
    pub fn next(&mut self) -> Option<K> {
        let name = self.turns.pop_front()?;
        let lane = self.lanes.get_mut(&name)?;
        let (_, key) = lane.pop_first()?;
        if lane.is_empty() {
            self.lanes.remove(&name);
        } else {
            self.turns.push_back(name);
        }
        self.waiting.remove(&key);
        Some(key)
    }
}
