//! Helpers that tests share: real servers on free ports, temp folders.
