"""What all jobs share: arguments, the bucket, manifests, schemas, the session, what is printed."""
