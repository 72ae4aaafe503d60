//! An index of descriptors by their feeds, so that finding a feed needs no search of all.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Value, json};

/// Descriptors by the service's name in the pod file. Invariant: the index holds every feed of
/// every descriptor.
pub(super) struct Feeds {
    descriptors: BTreeMap<String, Value>,
    /// Index of each service's feeds.
    indexes: HashMap<String, Index>,
    /// The services with a feed, by the feed's name.
    services: HashMap<String, BTreeSet<String>>,
}

/// Positions in a descriptor of the first feed with each name, and with each path.
#[derive(Default)]
struct Index {
    names: HashMap<String, usize>,
    paths: HashMap<String, usize>,
}

impl Feeds {
    pub fn new(descriptors: BTreeMap<String, Value>) -> Self {
        let mut feeds = Self {
            descriptors,
            indexes: HashMap::new(),
            services: HashMap::new(),
        };
        let descriptors = std::mem::take(&mut feeds.descriptors);
        for (service, descriptor) in &descriptors {
            for (at, feed) in feeds_of(descriptor).enumerate() {
                feeds.index(service, at, feed);
            }
        }
        Self {
            descriptors,
            ..feeds
        }
    }

    fn index(&mut self, service: &str, at: usize, feed: &Value) {
        let index = self.indexes.entry(service.to_owned()).or_default();
        if let Some(path) = feed["path"].as_str() {
            index.paths.entry(path.to_owned()).or_insert(at);
        }
        if let Some(name) = feed["name"].as_str() {
            index.names.entry(name.to_owned()).or_insert(at);
            let services = self.services.entry(name.to_owned()).or_default();
            services.insert(service.to_owned());
        }
    }

    pub fn descriptor(&self, service: &str) -> Option<&Value> {
        self.descriptors.get(service)
    }

    /// Returns the services with a descriptor.
    pub fn described(&self) -> impl Iterator<Item = &String> {
        self.descriptors.keys()
    }

    /// Returns the services whose descriptor has a feed of this name.
    pub fn services(&self, name: &str) -> impl Iterator<Item = &String> {
        self.services.get(name).into_iter().flatten()
    }

    /// Returns the name of a service's first feed with this name or path.
    pub fn known(&self, service: &str, name: Option<&str>, path: Option<&str>) -> Option<&str> {
        let index = self.indexes.get(service)?;
        let by_name = name.and_then(|name| index.names.get(name));
        let by_path = path.and_then(|path| index.paths.get(path));
        let at = by_name.into_iter().chain(by_path).min()?;
        self.descriptors.get(service)?["feeds"][*at]["name"].as_str()
    }

    /// Adds a feed to a service's descriptor. Returns false if the descriptor is no object, or
    /// missing.
    pub fn add(&mut self, service: &str, name: &str, path: &str, ttl: u64) -> bool {
        let Some(Value::Object(descriptor)) = self.descriptors.get_mut(service) else {
            return false;
        };
        let feeds = descriptor.entry("feeds").or_insert_with(|| json!([]));
        if let Some(feeds) = feeds.as_array_mut() {
            let at = feeds.len();
            let feed = json!({"name": name, "path": path, "ttl": ttl});
            feeds.push(feed.clone());
            self.index(service, at, &feed);
        }
        true
    }
}

fn feeds_of(descriptor: &Value) -> impl Iterator<Item = &Value> {
    descriptor["feeds"].as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feeds_are_found_by_name_and_by_path() {
        let descriptor = json!({"feeds": [
            {"path": "/nameless"}, {"name": "a", "path": "/a"}, {"name": "b", "path": "/a"},
        ]});
        let other = json!({"feeds": [{"name": "b", "path": "/b"}]});
        let descriptors = BTreeMap::from([
            ("lake".to_owned(), other),
            ("pond".to_owned(), descriptor),
            ("reef".to_owned(), json!({})),
        ]);
        let mut feeds = Feeds::new(descriptors);
        let services = |feeds: &Feeds, name| feeds.services(name).cloned().collect::<Vec<_>>();
        assert_eq!(services(&feeds, "b"), ["lake", "pond"]);
        assert_eq!(feeds.known("pond", Some("b"), Some("/a")), Some("a"));
        assert_eq!(feeds.known("pond", None, Some("/nameless")), None);
        assert_eq!(feeds.known("reef", Some("b"), None), None);
        assert!(feeds.add("reef", "c", "/c", 60));
        assert_eq!(feeds.known("reef", None, Some("/c")), Some("c"));
        assert_eq!(services(&feeds, "c"), ["reef"]);
        assert!(!feeds.add("sea", "c", "/c", 60));
    }
}
