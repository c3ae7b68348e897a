-- Second factors of members: origin and digest of the secret, step of the last code, and hashes of the recovery codes.
ALTER TABLE members ADD COLUMN second_factor TEXT;
