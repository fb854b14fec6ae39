//! The wire: facts, requests, reports and the envelope that carries them.
