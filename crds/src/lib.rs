//! The toolcrib.dev API kinds.
