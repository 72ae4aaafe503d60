//! The digest that binds an approval to one exact call.

use toolcrib_bounds::digest::Parts;

/// Everything that makes two calls different. An approval of one of them is none of the other.
#[derive(Clone, Copy, Debug)]
pub struct CallIdentity<'a> {
    /// The question's id.
    pub question: &'a str,
    pub namespace: &'a str,
    pub agent: &'a str,
    /// Uid of the pod that asks. A pod belongs to one Agent object for its whole life.
    pub pod: &'a str,
    /// Canonical tool name.
    pub tool: &'a str,
    /// Digest of the tool's entry.
    pub entry: &'a str,
    /// The arguments in canonical JSON, as they will be sent.
    pub arguments: &'a str,
}

impl CallIdentity<'_> {
    /// Returns the digest in a versioned form, `c1:<hex>`.
    pub fn digest(&self) -> String {
        let Self {
            question,
            namespace,
            agent,
            pod,
            tool,
            entry,
            arguments,
        } = self;
        let mut parts = Parts::default();
        parts.push_fixed("toolcrib call 1");
        for part in [question, namespace, agent, pod, tool, entry, arguments] {
            parts.push(part);
        }
        format!("c1:{}", hex::encode(parts.digest()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: CallIdentity<'_> = CallIdentity {
        question: "00112233445566778899aabbccddeeff",
        namespace: "trading",
        agent: "executor",
        pod: "2f1c8f0a-6f0e-4f0e-9b1a-0f0f0f0f0f0f",
        tool: "trading-api.place_order",
        entry: "v1:00",
        arguments: r#"{"qty":1}"#,
    };

    #[test]
    fn each_part_changes_the_digest() {
        let others = [
            CallIdentity {
                question: "x",
                ..CALL
            },
            CallIdentity {
                namespace: "x",
                ..CALL
            },
            CallIdentity { agent: "x", ..CALL },
            CallIdentity { pod: "x", ..CALL },
            CallIdentity { tool: "x", ..CALL },
            CallIdentity { entry: "x", ..CALL },
            CallIdentity {
                arguments: "x",
                ..CALL
            },
        ];
        for other in others {
            assert_ne!(other.digest(), CALL.digest(), "{other:?}");
        }
        assert!(CALL.digest().starts_with("c1:"));
    }
}
