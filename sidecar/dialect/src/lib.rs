//! Pure: the model APIs' wire formats, lossless edits, SSE.
