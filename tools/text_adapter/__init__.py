"""The parts of `tools.train_text_adapter`."""
