//! The verbs that write objects for review: `import`, and the verbs of `surface`.

pub mod discover;
pub mod image;
pub mod import;
pub mod in_cluster;
pub mod review;
pub mod surface;
