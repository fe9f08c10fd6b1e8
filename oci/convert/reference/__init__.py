"""The models in plain float32 numpy, straight from the published weights: what conversions are held to."""
