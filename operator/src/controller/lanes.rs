//! Keys that wait, lane by lane in turn, each at most once.

use std::collections::{BTreeSet, HashMap, VecDeque};

use super::queue::Key;

#[derive(Debug)]
pub struct Lanes<K> {
    /// Lanes with a waiting key.
    turns: VecDeque<String>,
    lanes: HashMap<String, VecDeque<K>>,
    waiting: BTreeSet<K>,
}

impl<K> Default for Lanes<K> {
    fn default() -> Self {
        Self {
            turns: VecDeque::new(),
            lanes: HashMap::new(),
            waiting: BTreeSet::new(),
        }
    }
}

impl<K: Key> Lanes<K> {
    pub fn add(&mut self, key: K) {
        if !self.waiting.insert(key.clone()) {
            return;
        }
        let lane = self.lanes.entry(key.lane().to_owned()).or_default();
        if lane.is_empty() {
            self.turns.push_back(key.lane().to_owned());
        }
        lane.push_back(key);
    }

    /// Takes a key out of the line.
    pub fn remove(&mut self, key: &K) {
        if !self.waiting.remove(key) {
            return;
        }
        if let Some(lane) = self.lanes.get_mut(key.lane()) {
            lane.retain(|waiting| waiting != key);
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
        self.waiting.contains(key)
    }

    pub fn next(&mut self) -> Option<K> {
        let name = self.turns.pop_front()?;
        let lane = self.lanes.get_mut(&name)?;
        let key = lane.pop_front()?;
        if lane.is_empty() {
            self.lanes.remove(&name);
        } else {
            self.turns.push_back(name);
        }
        self.waiting.remove(&key);
        Some(key)
    }
}
